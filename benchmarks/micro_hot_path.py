"""What the Python of the hot path costs per message, without sockets, threads and neighbours.

Three whole brokers over real files live in this one process and hand each other the bytes that their connections would
carry. One round: a read with `batch` sends of 1 KiB, their replication to both followers, the answers, reput on all
three. The leader's and a follower's share are timed apart, in CPU time, and the best of many rounds is told: on a
machine that is busy with other things this is the figure that can be compared before and after a change. System calls
of files are in it, those of sockets and wake-ups of threads are not.

    .venv/bin/python benchmarks/micro_hot_path.py [--sync] [--serialize rocketmq] [--profile leader.prof]
"""

import argparse
import cProfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from operator import add
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from broker.broker_controller import BrokerController
from broker.config.component_configs import dledger_config, store_config
from broker.config.config_file import read_broker_config
from disk.real_disk import RealDisk
from dledger.core.messages import HeartBeatResponse, Message, PeerId, PushResponse, VoteResponse
from dledger.formation import GroupIdentity
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.replica import Replica
from dledger.rpc.codec import encode_message
from dledger.rpc.connection import PeerConnection
from dledger.rpc.handshake import Handshake, Hello
from remoting.codes import RequestCode
from remoting.configuration import parse_properties
from remoting.frame.command import SerializeType, request
from remoting.frame.connection import RemotingConnection
from store.message_store import MessageStore

PEERS = ("n0", "n1", "n2")
ANSWERS = (VoteResponse, HeartBeatResponse, PushResponse)
CONF = """
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
brokerClusterName=DefaultCluster
brokerName=RaftNode00
brokerIP1=127.0.0.1
listenPort=30911
"""


class Channel:
    """A client's connection, whose answers are counted and dropped."""

    def __init__(self) -> None:
        self.id = 1
        self.remote_address = "127.0.0.1:50001"
        self.is_open = True
        self.paused = False
        self.attributes: dict[str, Any] = {}
        self.size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)

    def close(self) -> None:
        self.is_open = False


class MicroBroker:
    """One broker; what it wants done outside of itself waits in `inbox` and `todo` until the group lets it run."""

    def __init__(self, group: "MicroGroup", self_id: PeerId, directory: Path, flush_disk_type: str) -> None:
        self.group = group
        self.self_id = self_id
        self.todo: deque[Callable[[], object]] = deque()
        self.inbox: deque[tuple[PeerConnection, bytes]] = deque()
        self.asking: dict[PeerId, PeerConnection] = {}  # our end of connections that this broker dialled
        self.asked: dict[PeerId, PeerConnection] = {}
        text = (
            f"{CONF}dLegerSelfId={self_id}\nstorePathRootDir={directory}\nflushDiskType={flush_disk_type}\n"
        )
        config = read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0]
        disk = RealDisk()
        ledger_config = dledger_config(config)
        self.store = MessageStore(store_config(config), disk, self)
        quorum_state = QuorumState.load(disk, ledger_config.directory)
        self.replica = Replica(
            ledger_config,
            LogStore.open(disk, ledger_config.log_config, self.store.is_sound_body),
            quorum_state,
            self.store,
            _ReplicaRuntime(self),
            Random(self_id),
            group.now_ms,
        )
        self.store.start(self.replica, group.now_ms)
        self.controller = BrokerController(
            config, self.store, lambda: group.now_ms, Random(1), self.todo.append
        )
        self.channel = Channel()
        self.receive_data = RemotingConnection().receive_data

    def clock(self) -> int:
        return self.group.now_ms

    def monotonic_us(self) -> int:
        return self.group.now_ms * 1000

    def call_soon(self, step: Callable[[], None]) -> None:
        self.todo.append(step)

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self.todo.append(step)

    def reput_wanted(self) -> None:
        self.todo.append(lambda: self.store.reput_step(self.group.now_ms))

    def submit(self, job: DiskJob) -> None:
        self.todo.append(lambda: self.run_job(job, self.store.job_done))

    def run_job(self, job: DiskJob, job_done: Callable[[DiskJob, Exception | None, int], None]) -> None:
        job.run()
        job_done(job, None, self.group.now_ms)

    def run(self) -> None:
        """Everything that this broker can do by itself now."""
        inbox, todo, receive = self.inbox, self.todo, self.replica.receive
        now_ms = self.group.now_ms
        while inbox or todo:
            if inbox:
                connection, data = inbox.popleft()
                for message, payload in connection.receive_data(data):
                    receive(message, now_ms, payload)  # type: ignore[arg-type]
            else:
                todo.popleft()()

    def tick(self, now_ms: int) -> None:
        self.replica.tick(now_ms)
        self.store.tick(now_ms)
        self.controller.tick(now_ms)


class _ReplicaRuntime:
    def __init__(self, broker: MicroBroker) -> None:
        self._broker = broker

    def submit(self, job: DiskJob) -> None:
        broker = self._broker
        broker.todo.append(lambda: broker.run_job(job, broker.replica.job_done))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._broker.todo.append(callback)

    def send(self, to: PeerId, message: Message, buffers: Sequence[bytes]) -> None:
        broker = self._broker
        is_answer = isinstance(message, ANSWERS)
        peer = broker.group.brokers[to]
        peer_end = (peer.asking if is_answer else peer.asked)[broker.self_id]
        peer.inbox.append((peer_end, b"".join(encode_message(message, buffers))))

    def drop_connection(self, peer: PeerId, reason: str) -> None:
        raise AssertionError(reason)

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)


class MicroGroup:
    def __init__(self, directory: Path, *, sync: bool) -> None:
        self.now_ms = time.time_ns() // 1_000_000
        kind = "SYNC_FLUSH" if sync else "ASYNC_FLUSH"
        self.brokers: dict[PeerId, MicroBroker] = {}
        for peer in PEERS:
            self.brokers[peer] = MicroBroker(self, peer, directory / peer, kind)
        for dialler in self.brokers.values():
            for acceptor in self.brokers.values():
                if acceptor is not dialler:
                    self._connect(dialler, acceptor)
        for broker in self.brokers.values():
            for peer_id, other in self.brokers.items():
                if other is not broker:
                    identity = other.replica.formation.identity
                    group = None
                    if identity.group_uuid is not None:
                        group = GroupIdentity(identity.group_uuid, identity.pairs)
                    broker.replica.peer_seen(
                        *(peer_id, identity.disk_uuid, group, self.now_ms),
                        begin_pos=-1,
                        features=other.store.features,
                    )
        for broker in self.brokers.values():
            for peer_id in broker.asking:
                broker.replica.peer_connected(peer_id, self.now_ms)
        while not any(broker.store.serving for broker in self.brokers.values()):
            self.tick()
        self.leader = next(broker for broker in self.brokers.values() if broker.store.serving)
        self.followers = [broker for broker in self.brokers.values() if broker is not self.leader]

    def _connect(self, dialler: MicroBroker, acceptor: MicroBroker) -> None:
        ends = [
            self._new_end(dialler, acceptor.self_id, dialling=True),
            self._new_end(acceptor, "", dialling=False),
        ]
        for _ in range(3):
            for sender, receiver in (ends, reversed(ends)):
                receiver.receive_data(sender.data_to_send())
        dialler.asking[acceptor.self_id], acceptor.asked[dialler.self_id] = ends

    def _new_end(self, broker: MicroBroker, addressee_id: str, *, dialling: bool) -> PeerConnection:
        config, identity = broker.replica.config, broker.replica.formation.identity
        own = Hello(
            group=config.group,
            member_id=broker.self_id,
            addressee_id=addressee_id,
            nonce=bytes(32),
            disk_uuid=identity.disk_uuid,
            group_uuid=identity.group_uuid,
            pairs=identity.pairs,
            membership_index=broker.replica.member.membership_index,
            data_file_size=config.data_file_size,
        )
        handshake = Handshake(own, secrets=(b"",), members=frozenset(PEERS), dialling=dialling)
        return PeerConnection(handshake, frame_size_max=config.frame_size_max)

    def tick(self) -> None:
        self.now_ms += 10
        for broker in self.brokers.values():
            broker.tick(self.now_ms)
        self.settle()

    def settle(self) -> None:
        brokers = self.brokers.values()
        while any(broker.inbox or broker.todo for broker in brokers):
            for broker in brokers:
                broker.run()

    def round(self, data: bytes) -> tuple[int, int, int]:
        """ns of the leader, of the followers together, and of three ticks when nothing is to be done."""
        clock, leader, followers = time.thread_time_ns, self.leader, self.followers
        leader_ns = follower_ns = 0
        start = clock()
        leader.controller.pipeline.commands_received(leader.channel, leader.receive_data(data))
        leader.run()
        leader_ns += clock() - start
        while any(follower.inbox or follower.todo for follower in followers) or leader.inbox:
            start = clock()
            for follower in followers:
                follower.run()
            middle = clock()
            leader.run()
            follower_ns += middle - start
            leader_ns += clock() - middle
        # Followers hear of the commit with the next push, or as here with a tick, and dispatch.
        self.now_ms += 10
        leader.tick(self.now_ms)
        start = clock()
        for follower in followers:
            follower.run()
        follower_ns += clock() - start
        self.tick()
        self.tick()
        self.now_ms += 10
        start = clock()
        for broker in self.brokers.values():
            broker.tick(self.now_ms)
        tick_ns = clock() - start
        self.settle()
        return leader_ns, follower_ns, tick_ns


def sends(batch: int, serialize_type: SerializeType, body_size: int = 1024) -> bytes:
    """One read's worth of SEND_MESSAGE_V2 frames."""
    frames = []
    for number in range(batch):
        fields = {
            "a": "mqload",
            "b": "TBW102",
            "c": "TBW102",
            "d": "4",
            "e": str(number % 8),
            "f": "0",
            "g": "1795166744856",
            "h": "0",
            "i": f"KEYS\x01k{number}\x02UNIQ_KEY\x017F0000010000000000000000{number:08X}\x02WAIT\x01true\x02TAGS\x01A",
            "j": "0",
            "k": "false",
            "m": "false",
        }
        body = bytes(body_size)
        frames.append(
            request(
                RequestCode.SEND_MESSAGE_V2, fields, body, opaque=number, serialize_type=serialize_type
            ).encode()
        )
    return b"".join(frames)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--sync", action="store_true", help="flushDiskType=SYNC_FLUSH")
    parser.add_argument("--serialize", choices=("json", "rocketmq"), default="json")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--rounds", type=int, default=1500)
    parser.add_argument("--directory", help="default: memory, so that no disk has a say")
    parser.add_argument("--profile", help="write a cProfile of all rounds here")
    options = parser.parse_args()
    serialize_type = SerializeType.ROCKETMQ if options.serialize == "rocketmq" else SerializeType.JSON
    parent = options.directory or ("/dev/shm" if Path("/dev/shm").is_dir() else None)
    profile = cProfile.Profile() if options.profile else None
    print(
        "batch; us per message, best (median): leader, follower, all three; us of an idle tick of all three"
    )
    for batch in options.batches:
        with tempfile.TemporaryDirectory(dir=parent) as directory:
            group = MicroGroup(Path(directory), sync=options.sync)
            data = sends(batch, serialize_type)
            if profile:
                profile.enable()
            rounds = [group.round(data) for _ in range(options.rounds)]
            if profile:
                profile.disable()
            stored_size = group.leader.store.reads.confirm_offset
            assert stored_size > options.rounds * len(data) * 3 // 4, "what was sent is stored"
        leader, followers, ticks = zip(*rounds, strict=True)
        columns = (leader, [ns / 2 for ns in followers], list(map(add, leader, followers)))
        figures = [
            f"{min(column) / batch / 1000:6.1f} ({median(column) / batch / 1000:.1f})" for column in columns
        ]
        print(f"{batch:>5} {'  '.join(figures)}  {min(ticks) / 1000:.1f}")
    if profile:
        profile.dump_stats(options.profile)


if __name__ == "__main__":
    main()
