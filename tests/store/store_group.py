"""Members of a group, each a MessageStore over a real Replica over real files, in virtual time."""

import heapq
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from disk.disk import Disk
from disk.real_disk import RealDisk
from dledger.config import DLedgerConfig
from dledger.core.messages import Message, PeerId
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.replica import Replica
from dledger.rpc.requests import RepairMessage
from dledger.scrubber import ScrubRound
from message.properties import encode_properties
from message.tags import tags_code
from remoting.address import Address
from store.layout.index_file import IndexFileShape
from store.message_store import MessageStore
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus
from store.store_config import StoreConfig

DATA_FILE_SIZE = 64 * 1024
CQ_FILE_UNITS = 50
# Files of a few KiB, which are full after some hundred keys; their size alone does not tell how many slots they have.
INDEX_FILE_SHAPE = IndexFileShape(97, 300)
HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
_STORE_JOBS = {
    *("flush-consume-queue", "checkpoint", "export", "flush-index-file", "delete-index-file"),
    "mend-consume-queue",
}
START_MS = 1_700_000_000_000


def message(
    topic: str = "T", queue_id: int = 0, body: bytes = b"hello", tags: str = "", sys_flag: int = 0
) -> PutMessage:
    properties = encode_properties({"TAGS": tags, "KEYS": "k"} if tags else {"KEYS": "k"})
    return PutMessage(
        topic.encode(),
        queue_id,
        body,
        properties,
        tags_code(tags) if tags else 0,
        START_MS,
        HOST,
        sys_flag=sys_flag,
    )


class StoreMember:
    """One run of a member, from start to crash or stop. It is the Runtime of its replica and of its store."""

    def __init__(self, group: "StoreGroup", peer_id: PeerId) -> None:
        self.group = group
        self.id = peer_id
        self.up = True
        self.failure: str | None = None
        self.store_jobs: set[int] = set()
        self.reput_held = False
        disk = group.disk_of(peer_id)
        config = group.replica_config(peer_id)
        self.store = MessageStore(group.store_config(peer_id), disk, self)
        quorum_state = QuorumState.load(disk, config.directory)
        self.replica = Replica(
            config,
            LogStore.open(disk, config.log_config, self.store.is_sound_body),
            quorum_state,
            self.store,
            self,
            group.random,
            group.now_ms,
        )
        self.store.start(self.replica, group.now_ms)

    def send(self, to: PeerId, message: Message | RepairMessage, buffers: Sequence[bytes]) -> None:
        payload = b"".join(buffers)
        target = self.group.members.get(to)
        if target is None or {self.id, to} & self.group.cut_off:
            return

        def deliver() -> None:
            if target.up:
                target.replica.receive(message, self.group.now_ms, payload)

        self.group.at(1, deliver)

    def submit(self, job: DiskJob) -> None:
        self.later(2, lambda: self._run(job))

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.later(0, callback)

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self.later(delay_ms, step)

    def clock(self) -> int:
        return self.group.now_ms

    def monotonic_us(self) -> int:
        return self.group.now_ms * 1000

    def reput_wanted(self) -> None:
        self.later(0, self.reput)

    def drop_connection(self, peer: PeerId, reason: str) -> None:
        raise AssertionError(reason)

    def failed(self, reason: str) -> None:
        self.failure = reason

    def reput(self) -> None:
        if not self.reput_held:
            self.store.reput_step(self.group.now_ms)

    def tick(self) -> None:
        self.replica.tick(self.group.now_ms)
        self.store.tick(self.group.now_ms)
        self.later(10, self.tick)

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.group.at(delay_ms, lambda: callback() if self.up else None)

    def put(self, *messages: PutMessage) -> "Put":
        return Put(self, messages)

    def crash(self) -> None:
        """The process is gone; what it had written is in the page cache."""
        self.up = False
        self.replica.close(clean=False)
        self.store.close(clean=False)
        del self.group.members[self.id]

    def stop(self) -> None:
        self.replica.stop(self.group.now_ms)
        self.group.run_until(lambda: self.replica.idle and not self.store.is_busy)
        self.up = False
        self.store.stop()
        self.replica.close(clean=True)
        self.store.close(clean=True)
        del self.group.members[self.id]

    def _run(self, job: DiskJob) -> None:
        error: Exception | None = None
        try:
            job.run()
        except OSError as failure:
            error = failure
        if job.kind in _STORE_JOBS:
            self.store.job_done(job, error, self.group.now_ms)
        else:
            self.replica.job_done(job, error, self.group.now_ms)


def scrub(member: StoreMember) -> ScrubRound:
    """A round now; returns what it came to."""
    scrubber = member.replica.scrubber
    rounds = scrubber.rounds
    assert scrubber.start_round(member.group.now_ms)
    member.group.run_until(lambda: scrubber.rounds > rounds)
    result = scrubber.status().last_round
    assert result is not None
    return result


class Put:
    """One request that is appended at once, and how it ended."""

    def __init__(self, member: StoreMember, messages: Sequence[PutMessage]) -> None:
        self.statuses: list[PutStatus] = []
        self.result: PutBatch | PutRefusal | None = None
        gather = member.store.gather
        gather.add(0, list(messages), [self], [len(messages)], self._ended, member.group.now_ms)
        gather.append_waiting()
        self.result = self.result or gather.rounds[-1].batch

    def _ended(self, source: int, requests: list["Put"], outcome: PutBatch | PutRefusal, first: int) -> None:
        if self.result is None:
            self.result = outcome
        else:
            self.statuses.append(outcome.status if isinstance(outcome, PutRefusal) else PutStatus.PUT_OK)

    @property
    def queue_offsets(self) -> list[int]:
        assert isinstance(self.result, PutBatch)
        return [queue_offset for _, queue_offset in self.result.results]

    @property
    def phy_offsets(self) -> list[int]:
        assert isinstance(self.result, PutBatch)
        return [phy_offset for phy_offset, _ in self.result.results]

    @property
    def refusal(self) -> PutStatus:
        assert isinstance(self.result, PutRefusal)
        return self.result.status


class StoreGroup:
    def __init__(
        self,
        directory: Path,
        size: int = 1,
        *,
        disk_of: Callable[[PeerId], Disk] = lambda peer: RealDisk(),
        cq_file_units: int = CQ_FILE_UNITS,
        thorough_interval_ms: int = 60_000,
        checkpoint_entries_max: int = 131_072,
        index_file_shape: IndexFileShape = INDEX_FILE_SHAPE,
        data_file_size: int = DATA_FILE_SIZE,
        **settings: Any,
    ) -> None:
        """`settings`: further settings of a StoreConfig."""
        self.directory = directory
        self.disk_of = disk_of
        self.cq_file_units = cq_file_units
        self.thorough_interval_ms = thorough_interval_ms
        self.checkpoint_entries_max = checkpoint_entries_max
        self.index_file_shape = index_file_shape
        self.data_file_size = data_file_size
        self.settings = settings
        self.random = Random(1)
        self.peers = {f"n{number}": Address("127.0.0.1", 1 + number) for number in range(size)}
        self.now_ms = START_MS
        self.members: dict[PeerId, StoreMember] = {}
        self.cut_off: set[PeerId] = set()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = itertools.count()

    def root(self, peer_id: PeerId = "n0") -> Path:
        return self.directory / peer_id

    def replica_config(self, peer_id: PeerId) -> DLedgerConfig:
        return DLedgerConfig(
            group="g",
            self_id=peer_id,
            peers=self.peers,
            directory=str(self.root(peer_id) / f"dledger-{peer_id}"),
            data_file_size=self.data_file_size,
            index_file_size=32 * 4096,
        )

    def store_config(self, peer_id: PeerId) -> StoreConfig:
        return StoreConfig(
            store_path_root_dir=str(self.root(peer_id)),
            ledger_directory=str(self.root(peer_id) / f"dledger-{peer_id}"),
            old_commit_log_directory=str(self.root(peer_id) / "commitlog"),
            store_host=HOST,
            mapped_file_size_commit_log=self.data_file_size,
            mapped_file_size_consume_queue=20 * self.cq_file_units,
            max_message_size=16 * 1024,
            flush_consume_queue_thorough_interval_ms=self.thorough_interval_ms,
            checkpoint_entries_max=self.checkpoint_entries_max,
            flush_consumer_offset_interval_ms=500,
            consume_queue_cache_size=64 * 20,
            index_file_shape=self.index_file_shape,
            **self.settings,
        )

    def start(self, *peer_ids: PeerId) -> None:
        for peer_id in peer_ids or self.peers:
            member = StoreMember(self, peer_id)
            for other in self.members.values():
                self._introduce(member, other)
                self._introduce(other, member)
            self.members[peer_id] = member
            member.later(10, member.tick)

    def serving(self) -> StoreMember | None:
        return next((member for member in self.members.values() if member.store.serving), None)

    def lead(self) -> StoreMember:
        """The member that serves, once there is one."""
        self.run_until(lambda: self.serving() is not None)
        leader = self.serving()
        assert leader is not None
        return leader

    def settle(self) -> None:
        """Until everything appended is committed and dispatched on all members that run."""

        def settled() -> bool:
            ends = {member.replica.log.ledger_end_index for member in self.members.values()}
            applied = {member.store.reads.applied_index for member in self.members.values()}
            return ends == applied and len(ends) == 1

        self.run_until(settled)

    def at(self, delay_ms: int, callback: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now_ms + delay_ms, next(self._sequence), callback))

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._events and self._events[0][0] <= end_ms:
            self._step()
        self.now_ms = end_ms

    def skip(self, duration_ms: int) -> None:
        """So much later, at once: as if nobody had had the time to do anything."""
        self._events = [(due_ms + duration_ms, number, step) for due_ms, number, step in self._events]
        self.now_ms += duration_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 20_000) -> None:
        end_ms = self.now_ms + limit_ms
        while not condition():
            assert self._events, "nothing happens any more"
            assert self._events[0][0] <= end_ms, "it did not come about"
            self._step()

    def _introduce(self, member: StoreMember, peer: StoreMember) -> None:
        replica = peer.replica
        group_identity = replica.formation.group
        member.replica.peer_seen(
            peer.id,
            replica.formation.identity.disk_uuid,
            group_identity,
            self.now_ms,
            begin_pos=replica.formation.begin_pos,
            features=peer.store.features,
        )
        member.replica.peer_connected(peer.id, self.now_ms)

    def _step(self) -> None:
        self.now_ms, _, callback = heapq.heappop(self._events)
        callback()


def consume_queue_units(root: Path) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    """What a reader of the files alone finds, as Java reads them: up to the first unit never written."""
    from store.layout.consume_queue_unit import parse_units

    queues: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
    for directory in sorted(root.glob("consumequeue/*/*")):
        data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
        queues[directory.parent.name, int(directory.name)] = parse_units(data)
    return queues
