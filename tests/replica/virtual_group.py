"""A group of replicas in virtual time over real files: a small deterministic Runtime for tests of the replica.

Faults are the simulator's business; here members only crash and come back.
"""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from disk.disk import Disk
from disk.real_disk import RealDisk
from dledger.config import DLedgerConfig, FlushMode
from dledger.core.member_config import MemberConfig
from dledger.core.messages import Message, PeerId
from dledger.core.output import Batch, Role, RoleChange
from dledger.entry import EntryKind, Index, Pos, Term
from dledger.errors import HandshakeRefusedError
from dledger.formation import GroupIdentity
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.replica import Replica
from dledger.replica_status import replica_status
from dledger.rpc.requests import RepairMessage
from dledger.runtime import OnDone
from dledger.scrubber import DEFAULT_BYTES_PER_SECOND
from dledger.tick_pace import TickPace
from remoting.address import Address

DATA_FILE_SIZE = 64 * 1024
MESSAGE_DELAY_MS = 1
JOB_DELAY_MS = 3


@dataclass
class NoOp:
    term: Term
    size: int = 16

    def encode(self, pos: Pos, now_ms: int) -> bytes:
        return b"no-op %d" % self.term + bytes(self.size - len(b"no-op %d" % self.term))


@dataclass
class SeatEntry:
    payload: bytes

    @property
    def size(self) -> int:
        return len(self.payload)

    def encode(self, pos: Pos, now_ms: int) -> bytes:
        return self.payload


@dataclass
class Journal:
    """An embedder that writes down what it is told."""

    committed_indexes: list[Index] = field(default_factory=list)
    roles: list[RoleChange] = field(default_factory=list)
    cuts: list[Index] = field(default_factory=list)
    begun_behind: list[Index] = field(default_factory=list)

    def is_sound_body(self, body: memoryview) -> bool:
        return True

    def no_op(self, term: Term) -> NoOp:
        return NoOp(term)

    def membership_entry(self, payload: bytes) -> SeatEntry:
        return SeatEntry(payload)

    def membership_payload(self, body: bytes) -> bytes:
        return body

    def committed(self, committed_index: Index) -> None:
        self.committed_indexes.append(committed_index)

    def role_changed(self, change: RoleChange) -> None:
        self.roles.append(change)

    def log_cut(self, from_index: Index) -> None:
        self.cuts.append(from_index)

    def log_began_anew(self, before_begin_index: Index) -> None:
        self.begun_behind.append(before_begin_index)


class VirtualMember:
    """One run of a member, from start to crash or stop. Also the Runtime of its replica."""

    def __init__(self, group: "VirtualGroup", peer_id: PeerId, disk: Disk) -> None:
        self.group = group
        self.id = peer_id
        self.up = True
        self.failure: str | None = None
        self.dropped: list[str] = []
        self.sent = self.ticks = 0
        self.job_delays_ms: dict[str, int] = {}  # by kind, where it is another
        self.journal = Journal()
        config = group.config(peer_id)
        quorum_state = QuorumState.load(disk, config.directory)
        log_store = LogStore.open(
            disk,
            config.log_config,
            self.journal.is_sound_body,
            quorum_state.last_run,
        )
        self.replica = Replica(
            config,
            log_store,
            quorum_state,
            self.journal,
            self,
            group.random,
            group.now_ms,
            boot_id=group.boot_ids.get(peer_id, ""),
        )
        self.pace = TickPace(self.replica, self.tick_in)
        self._tick_number = 0

    def send(self, to: PeerId, message: Message | RepairMessage, buffers: Sequence[bytes]) -> None:
        self.sent += 1
        self.pace.sent(message)
        self.group.carry(self, to, message, b"".join(buffers))

    def submit(self, job: DiskJob) -> None:
        self.pace.wake()

        def run() -> None:
            error: Exception | None = None
            try:
                job.run()
            except OSError as failure:
                error = failure
            self.replica.job_done(job, error, self.group.now_ms)
            self.pace.wake()

        self.later(self.job_delays_ms.get(job.kind, JOB_DELAY_MS), run)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.later(0, callback)

    def drop_connection(self, peer: PeerId, reason: str) -> None:
        self.dropped.append(reason)

    def failed(self, reason: str) -> None:
        self.failure = reason

    def tick(self) -> None:
        self.ticks += 1
        self.replica.tick(self.group.now_ms)
        if self.group.paces_ticks:
            self.pace.ticked(self.group.now_ms)
        else:
            self.tick_in(self.replica.config.tick_interval_ms)

    def tick_in(self, delay_ms: int) -> None:
        """In the place of the tick that was to come."""
        self._tick_number += 1
        number = self._tick_number
        self.later(delay_ms, lambda: self.tick() if number == self._tick_number else None)

    def later(self, delay_ms: int, callback: Callable[[], None]) -> None:
        self.group.at(self.group.now_ms + delay_ms, lambda: callback() if self.up else None)


class VirtualGroup:
    def __init__(
        self,
        directory: Path,
        size: int = 3,
        *,
        seed: int = 1,
        flush_mode: FlushMode = FlushMode.SYNC_FLUSH,
        disk_of: Callable[[PeerId], Disk] = lambda peer: RealDisk(),
        scrub_bytes_per_second: int = DEFAULT_BYTES_PER_SECOND,
        heart_beat_interval_ms: int = 150,
        paces_ticks: bool = False,
    ) -> None:
        """`paces_ticks`: members at rest tick seldom, as servers do; else each 10 ms."""
        self.directory = directory
        self.random = Random(seed)
        self.flush_mode = flush_mode
        self.scrub_bytes_per_second = scrub_bytes_per_second
        self.heart_beat_interval_ms = heart_beat_interval_ms
        self.paces_ticks = paces_ticks
        self.data_file_size = DATA_FILE_SIZE
        self.peers = {f"n{number}": Address("127.0.0.1", 1 + number) for number in range(size)}
        self.late: frozenset[PeerId] = frozenset()  # not in the conf of the others
        self.boot_ids: dict[PeerId, str] = {}
        self.now_ms = 0
        self.tamper: Callable[[Message | RepairMessage, bytes], bytes] = lambda message, payload: payload
        self.loses: Callable[[Message | RepairMessage], bool] = lambda message: False
        self.members: dict[PeerId, VirtualMember] = {}
        self._disk_of = disk_of
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._sequence = 0

    def config(self, peer_id: PeerId) -> DLedgerConfig:
        peers = {
            peer: address for peer, address in self.peers.items() if peer == peer_id or peer not in self.late
        }
        return DLedgerConfig(
            group="g",
            self_id=peer_id,
            peers=peers,
            member=MemberConfig(
                self_id=peer_id, peers=tuple(peers), heart_beat_interval_ms=self.heart_beat_interval_ms
            ),
            directory=str(self.directory / f"dledger-{peer_id}"),
            data_file_size=self.data_file_size,
            index_file_size=32 * 512,
            flush_mode=self.flush_mode,
            scrub_bytes_per_second=self.scrub_bytes_per_second,
        )

    # -- members

    def start(self, *peer_ids: PeerId) -> None:
        for peer_id in peer_ids or self.peers:
            member = VirtualMember(self, peer_id, self._disk_of(peer_id))
            self.members[peer_id] = member
            member.tick()
            self.meet_all(member)

    def crash(self, peer_id: PeerId) -> None:
        member = self.members.pop(peer_id)
        member.up = False
        member.replica.close(clean=False)
        for other in self.running():
            other.replica.peer_disconnected(peer_id, self.now_ms)

    def stop(self, peer_id: PeerId) -> None:
        member = self.members[peer_id]
        member.replica.stop(self.now_ms)
        self.run_until(lambda: member.replica.idle)
        del self.members[peer_id]
        member.up = False
        member.replica.close(clean=True)
        for other in self.running():
            other.replica.peer_disconnected(peer_id, self.now_ms)

    def running(self) -> list[VirtualMember]:
        return list(self.members.values())

    def leader(self) -> VirtualMember | None:
        """That of the highest term, once it may append."""
        ready = [member for member in self.running() if member.replica.member.leader_ready]
        return max(ready, key=lambda member: member.replica.member.curr_term, default=None)

    def meet_all(self, member: VirtualMember) -> None:
        for other in self.running():
            if other is not member:
                self._meet(member, other)
                self._meet(other, member)

    def _meet(self, member: VirtualMember, other: VirtualMember) -> None:
        identity = other.replica.formation.identity
        group: GroupIdentity | None = other.replica.formation.group
        try:
            formed_now = member.replica.peer_seen(
                other.id,
                identity.disk_uuid,
                group,
                self.now_ms,
                begin_pos=other.replica.formation.begin_pos,
                peers=tuple(other.replica.config.peers) if group is None else (),
            )
        except HandshakeRefusedError:
            return
        if formed_now:
            member.later(0, lambda: self.meet_all(member))
            return
        member.replica.peer_connected(other.id, self.now_ms)

    # -- time and messages

    def at(self, time_ms: int, callback: Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (time_ms, self._sequence, callback))

    def carry(
        self, sender: VirtualMember, to: PeerId, message: Message | RepairMessage, payload: bytes
    ) -> None:
        if self.loses(message):
            return
        payload = self.tamper(message, payload)
        receiver = self.members.get(to)

        def arrive() -> None:
            if receiver is None or not receiver.up or not sender.up:
                return
            receiver.replica.receive(message, self.now_ms, payload)
            if receiver.pace.is_occasion(self.now_ms):
                receiver.tick()

        self.at(self.now_ms + MESSAGE_DELAY_MS, arrive)

    def delete_files(self, member: VirtualMember, count: int) -> None:
        """Its oldest data files, as retention does."""
        self.run_for(1500)  # the synced mark comes up
        for _ in range(count):
            self.run_until(lambda: member.replica.delete_first_file(self.now_ms))
        self.run_until(lambda: member.replica.idle)

    def run_until(self, condition: Callable[[], object], limit_ms: int = 20_000) -> None:
        end_ms = self.now_ms + limit_ms
        while not condition():
            time_ms, _, callback = heapq.heappop(self._events)
            assert time_ms <= end_ms, (
                f"not within {limit_ms} ms: {[replica_status(m.replica) for m in self.running()]}"
            )
            self.now_ms = time_ms
            callback()

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        self.run_until(lambda: self._events[0][0] > end_ms)
        self.now_ms = end_ms

    # -- what tests do

    def elect(self) -> VirtualMember:
        self.run_until(self.leader)
        leader = self.leader()
        assert leader is not None
        return leader

    def append(self, leader: VirtualMember, bodies: Sequence[bytes], on_done: OnDone | None = None) -> Batch:
        sizes = [len(body) for body in bodies]
        batch = leader.replica.append(sizes, lambda _: bodies, EntryKind.MESSAGE, on_done, self.now_ms)
        assert isinstance(batch, Batch)
        return batch

    def converged(self) -> bool:
        ends = {
            (
                member.replica.log.ledger_end_index,
                member.replica.log.ledger_end_chain,
                member.replica.member.committed_index,
                member.replica.log.durable_index,
            )
            for member in self.running()
        }
        leaders = [member for member in self.running() if member.replica.member.role is Role.LEADER]
        return len(ends) == 1 and len(leaders) == 1 and self.leader() is not None

    def data_files(self, peer_id: PeerId) -> dict[str, bytes]:
        data = self.directory / f"dledger-{peer_id}" / "data"
        return {path.name: path.read_bytes() for path in sorted(data.iterdir())}


def level_group(directory: Path, bodies: Sequence[bytes]) -> tuple[VirtualGroup, VirtualMember]:
    """A group of three all of which hold these entries, and who leads it."""
    group = VirtualGroup(directory)
    group.start()
    leader = group.elect()
    group.append(leader, bodies)
    group.run_until(group.converged)
    return group, leader
