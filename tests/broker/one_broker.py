"""A whole broker without sockets: a group of one over real files, in virtual time, spoken to in frames."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from broker.access.access_check import AccessCheck, RequestAccess, Sender
from broker.access.passed_on import PassedOn
from broker.broker_controller import BrokerController
from broker.config.access_settings import AccessConfig
from broker.config.broker_config import BrokerConfig
from broker.config.component_configs import dledger_config, open_plain_log, store_config
from broker.config.config_file import read_broker_config
from disk.real_disk import RealDisk
from dledger.core.messages import Message, PeerId
from dledger.core.output import Role
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.replica import Replica
from dledger.replica_status import replica_status
from remoting.bodies.bodies import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.configuration import parse_properties
from remoting.frame.command import RemotingCommand, SerializeType, request
from remoting.frame.connection import RemotingConnection
from store.java.plain_import import ImportedState, PlainImport
from store.message_store import MessageStore
from store.put_message import PutBatch, PutMessage, PutRefusal
from store.state.tables.access_table import AccessTable

START_MS = 1_800_000_000_000
GROUP_CONF = """
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911
dLegerSelfId=n0
"""
CONF = """
brokerClusterName=GoldenCluster
brokerName=golden-a
brokerIP1=127.0.0.1
listenPort=17911
mapedFileSizeCommitLog=33554432
maxHashSlotNum=97
maxIndexNum=300
"""


# Nobody is asked who they are.
OPEN_ACCESS = RequestAccess(
    AccessCheck(AccessConfig(), "", "", AccessTable(), PassedOn("")), 0, (), Sender("127.0.0.1")
)


class RecordingChannel:
    """The client's end of a connection: what was written, as commands."""

    def __init__(self, channel_id: int = 1, remote_address: str = "127.0.0.1:50001") -> None:
        self.id = channel_id
        self.remote_address = remote_address
        self.is_open = True
        self.paused = False
        self.reading_pauses = 0
        self.attributes: dict[str, Any] = {}
        self.writes: list[bytes] = []
        self.received: list[RemotingCommand] = []
        self._connection = RemotingConnection()

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        self.received += self._connection.receive_data(data)

    def pause_reading(self) -> None:
        self.reading_pauses += 1

    def resume_reading(self) -> None:
        self.reading_pauses -= 1

    def close(self) -> None:
        self.is_open = False

    def response_to(self, opaque: int) -> RemotingCommand | None:
        found = [c for c in self.received if c.is_response and c.opaque == opaque]
        assert len(found) <= 1, "a request is answered once"
        return found[0] if found else None


class OneBroker:
    """Runtime of its store; that of its replica is beside it. Jobs and callbacks run when `settle` is called."""

    def __init__(
        self,
        directory: Path,
        conf: str = "",
        *,
        elect: bool = True,
        now_ms: int = START_MS,
        is_plain: bool = False,
    ) -> None:
        """`is_plain`: without a DLedger group."""
        self.now_ms = now_ms
        self._timers: list[tuple[int, Callable[[], None]]] = []
        self.config = self._read(directory, conf if is_plain else GROUP_CONF + conf)
        self.failure: str | None = None
        self._todo: deque[Callable[[], object]] = deque()
        disk = RealDisk()
        config = dledger_config(self.config)
        self.store = MessageStore(store_config(self.config), disk, self)
        plain_import = PlainImport(disk, self.store.config)
        if is_plain:
            plain_import.prepare()
        quorum_state = QuorumState.load(disk, config.directory)
        self.replica = Replica(
            config,
            open_plain_log(self.config, disk, config)
            if is_plain
            else LogStore.open(disk, config.log_config, self.store.is_sound_body),
            quorum_state,
            self.store,
            _ReplicaRuntime(self),
            Random(1),
            self.now_ms,
        )
        imported = plain_import.take_over(self.replica.log) if is_plain else ImportedState()
        self.store.start(self.replica, self.now_ms, imported)
        self.controller = BrokerController(
            self.config,
            self.store,
            lambda: self.now_ms,
            Random(2),
            self.later,
            member_status=lambda: replica_status(self.replica),
        )
        self.channel = RecordingChannel()
        self._opaque = 0
        if elect:
            self.run_until(lambda: self.store.serving)

    @staticmethod
    def _read(directory: Path, conf: str) -> BrokerConfig:
        text = f"{CONF}storePathRootDir={directory}\n{conf}"
        return read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0]

    # -- runtime

    def reput_wanted(self) -> None:
        self.later(lambda: self.store.reput_step(self.now_ms))

    def submit(self, job: DiskJob) -> None:
        self.later(lambda: self._run(job, self.store.job_done))

    def _run(self, job: DiskJob, job_done: Callable[[DiskJob, Exception | None, int], None]) -> None:
        job.run()
        job_done(job, None, self.now_ms)

    def later(self, callback: Callable[[], object]) -> None:
        self._todo.append(callback)

    def clock(self) -> int:
        return self.now_ms

    def monotonic_us(self) -> int:
        return self.now_ms * 1000

    def call_soon(self, step: Callable[[], None]) -> None:
        self.later(step)

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self._timers.append((self.now_ms + delay_ms, step))

    # -- driving

    def settle(self) -> None:
        while self._todo:
            self._todo.popleft()()
        assert self.failure is None

    def end_turn(self) -> None:
        """What was to be done after this turn of the event loop, and nothing of what comes of it."""
        for _ in range(len(self._todo)):
            self._todo.popleft()()

    def tick(self, ms: int = 10) -> None:
        self.now_ms += ms
        self.replica.tick(self.now_ms)
        self.store.tick(self.now_ms)
        self.controller.tick(self.now_ms)
        due = [step for due_ms, step in self._timers if due_ms <= self.now_ms]
        self._timers = [timer for timer in self._timers if timer[0] > self.now_ms]
        self._todo.extend(due)
        self.settle()

    def run_for(self, ms: int) -> None:
        """Time passes in steps that a leader of a group of one takes for its own."""
        for _ in range(0, ms, 100):
            self.tick(100)

    def run_until(self, condition: Callable[[], bool], ticks_max: int = 1000) -> None:
        for _ in range(ticks_max):
            if condition():
                return
            self.tick()
        raise AssertionError(f"not within {ticks_max} ticks")

    def step_down(self) -> None:
        """The member stops: from here on it follows nobody and serves nothing."""
        self.replica.stop(self.now_ms)
        self.settle()
        assert self.store.role is Role.FOLLOWER

    def put(self, message: PutMessage) -> PutRefusal | None:
        """Appends a message beside what clients send. Returns why it is refused."""
        refusals: list[PutRefusal] = []

        def on_end(source: int, requests: list[int], outcome: PutBatch | PutRefusal, first: int) -> None:
            if isinstance(outcome, PutRefusal):
                refusals.append(outcome)

        self.store.gather.add(0, [message], [0], (), on_end, self.now_ms)
        self.store.gather.append_waiting()
        return refusals[0] if refusals else None

    # -- speaking

    def receive(self, commands: list[RemotingCommand], channel: RecordingChannel | None = None) -> None:
        """One read with these commands, without anything happening after it."""
        self.controller.pipeline.commands_received(channel or self.channel, [*commands])

    def new_request(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
        serialize_type: int = SerializeType.JSON,
    ) -> RemotingCommand:
        self._opaque += 1
        return request(
            code, ext_fields, body, opaque=self._opaque, oneway=oneway, serialize_type=serialize_type
        )

    def ask(
        self,
        code: int,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
        channel: RecordingChannel | None = None,
    ) -> RemotingCommand:
        """A request and its answer, which must come by itself within 50 ms."""
        command = self.new_request(code, ext_fields, body)
        channel = channel or self.channel
        self.receive([command], channel)
        self.settle()
        for _ in range(5):
            answer = channel.response_to(command.opaque)
            if answer is not None:
                return answer
            self.tick()
        raise AssertionError(f"code {code} was not answered")

    def close(self, *, clean: bool = False) -> None:
        if clean:
            self.replica.stop(self.now_ms)
            self.run_until(lambda: self.replica.idle and not self.store.is_busy)
            self.store.stop()
        self.replica.close(clean=clean)
        self.store.close(clean=clean)


class _ReplicaRuntime:
    def __init__(self, broker: OneBroker) -> None:
        self._broker = broker

    def submit(self, job: DiskJob) -> None:
        broker = self._broker
        broker.later(lambda: broker._run(job, broker.replica.job_done))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._broker.later(callback)

    def failed(self, reason: str) -> None:
        self._broker.failure = reason

    def send(self, to: PeerId, message: Message, buffers: Sequence[bytes]) -> None:
        pass  # a member that is added to this group of one is not there

    def drop_connection(self, peer: PeerId, reason: str) -> None:
        raise AssertionError(reason)


def send_fields(
    topic: str, queue_id: int = 0, properties: str = "TAGS\x01A\x02", **more: str
) -> dict[str, str]:
    """The header of a SEND_MESSAGE_V2."""
    return {
        "a": "p",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1795166744856",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
        **more,
    }


def pull_fields(in_topic: str, queue_id: int = 0, offset: int = 0, **more: str) -> dict[str, str]:
    """The header of a PULL_MESSAGE that brings its own subscription and does not wait."""
    return {
        "consumerGroup": "g",
        "topic": in_topic,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "4",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
        **more,
    }


def commit_fields(offset: int, **more: str) -> dict[str, str]:
    """The header of an UPDATE_CONSUMER_OFFSET."""
    return {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": str(offset), **more}


def heart_beat(
    client_id: str,
    *,
    topics: tuple[str, ...] = ("T",),
    group: str = "g",
    fingerprint: int = 0,
    without_sub: bool = False,
    model: str = "CLUSTERING",
    sub_version: int = 1,
) -> bytes:
    subscriptions = [
        SubscriptionData(topic=topic, sub_string="*", sub_version=sub_version) for topic in topics
    ]
    return HeartbeatData(
        client_id=client_id,
        producer_data_set=[ProducerData(group_name="p")],
        consumer_data_set=[
            ConsumerData(
                group_name=group,
                message_model=model,
                subscription_data_set=[] if without_sub else subscriptions,
            )
        ],
        heartbeat_fingerprint=fingerprint,
        without_sub=without_sub,
    ).encode()
