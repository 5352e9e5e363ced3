"""What a broker does with the requests of pop consumers, over one life of a simulated member: its own processors."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, NamedTuple

from broker.access.access_check import AccessCheck, RequestAccess, Sender
from broker.access.passed_on import PassedOn
from broker.answers import Answers, Request
from broker.broker_stats import BrokerStats
from broker.clients.client_channel import ClientChannel
from broker.config.access_settings import AccessConfig
from broker.config.broker_config import BrokerConfig, MessageStoreConfig
from broker.processors.pop.ack_message_processor import AckMessageProcessor
from broker.processors.pop.pop_message_processor import PopMessageProcessor
from broker.processors.pop.pop_queues import PopQueues
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from broker.waiting.waiting_pops import WaitingPops
from dledger.cluster_secrets import NO_CLUSTER_SECRET
from remoting.bodies.pop_bodies import BatchAckMessageRequestBody
from remoting.frame.command import RemotingCommand
from remoting.headers.headers import CommandHeader, HeaderT
from remoting.headers.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from simulator.world.process import Process
from store.state.tables.access_table import AccessTable

BROKER_NAME: Final = "simulated"
_TICK_US: Final = 50_000
_CONFIG: Final = BrokerConfig(
    broker_name=BROKER_NAME,
    broker_ip1="127.0.0.1",
    store_ip="127.0.0.1",
    max_popped_messages=300,
    dledger=None,
    store=MessageStoreConfig(store_path_root_dir="", store_path_commit_log=""),
)


class PopAnswer(NamedTuple):
    code: int
    fields: Mapping[str, str]
    body: bytes


OnAnswer = Callable[[PopAnswer], None]


class PopBroker:
    """Invariant: each request is answered once, unless the process ends before."""

    def __init__(self, process: Process, random: Random) -> None:
        self.process = process
        store, self._clock = process.store, process.host.now_ms
        topics, groups = TopicConfigManager(_CONFIG, store), SubscriptionGroupManager(_CONFIG, store)
        self._waiting = WaitingPops(store.reads.look_message_by_offset)
        self._pops = PopMessageProcessor(
            _CONFIG,
            store,
            PopQueues(_CONFIG, store, topics, groups, random),
            BrokerStats(lambda: store.queues),
            self._waiting,
            self._clock,
        )
        self._acks = AckMessageProcessor(store, topics, self._waiting, self._clock, process.call_soon)
        store.add_arrival_listener(lambda arrived: self._waiting.on_arriving(arrived, self._clock()))
        store.add_role_listener(lambda change: self._waiting.wake_all(self._clock()))

    def pop(self, header: PopMessageRequestHeader, told: OnAnswer) -> None:
        self._pops.pop(_request(header, told), self._clock())
        self._tick_later()

    def ack(self, header: AckMessageRequestHeader, told: OnAnswer) -> None:
        self._acks.ack(_request(header, told), self._clock())

    def batch_ack(self, body: BatchAckMessageRequestBody, told: OnAnswer) -> None:
        self._acks.batch_ack(_request(CommandHeader(), told), body, self._clock())

    def change_invisible_time(self, header: ChangeInvisibleTimeRequestHeader, told: OnAnswer) -> None:
        self._acks.change_invisible_time(_request(header, told), self._clock())

    def _tick_later(self) -> None:
        if len(self._waiting):
            self.process.host.call_later(_TICK_US, self.process, self._tick)

    def _tick(self) -> None:
        self._waiting.tick(self._clock())
        self._tick_later()


# Nobody is asked who they are.
_OPEN = RequestAccess(
    AccessCheck(AccessConfig(), "", "", AccessTable(), PassedOn(NO_CLUSTER_SECRET)),
    0,
    (),
    Sender("127.0.0.1"),
)


def _request(header: HeaderT, told: OnAnswer) -> Request[HeaderT]:
    channel = _Channel()
    return Request(RemotingCommand(), header, channel, _Answer(channel, told), _OPEN)


class _Channel:
    """Of a client that never goes away. It is a ClientChannel."""

    id = 1
    remote_address = "127.0.0.1:40000"
    is_open = True
    paused = False

    def __init__(self) -> None:
        self.attributes: dict[str, Any] = {}

    def write(self, data: bytes) -> None:
        raise AssertionError("answers are handed over unwritten")

    def pause_reading(self) -> None:
        raise AssertionError("requests come one by one, and take no turns")

    resume_reading = pause_reading

    def close(self) -> None:
        raise AssertionError("processors of pop close no channel")


class _Answer(Answers):
    """Of one request."""

    __slots__ = ("_told",)

    def __init__(self, channel: ClientChannel, told: OnAnswer) -> None:
        super().__init__(channel)
        self._told: OnAnswer | None = told

    def add(
        self,
        command: RemotingCommand,
        code: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        told, self._told = self._told, None
        assert told is not None, "a request is answered once"
        told(PopAnswer(code, ext_fields or {}, body))
