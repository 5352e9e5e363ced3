"""A process as invariants see it."""

import struct
from collections.abc import Hashable, Iterator, Sequence

from dledger.core.membership import Membership
from dledger.core.output import Role
from dledger.entry import (
    BLANK_HEADER_SIZE,
    BLANK_MAGIC,
    INDEX_UNIT,
    INDEX_UNIT_SIZE,
    Index,
    IndexUnit,
    Term,
    is_exact_blank,
)
from dledger.errors import FaultyEntryError
from dledger.log.faulty_ranges import FaultyRange
from simulator.faults.damage import Damage, as_it_was
from simulator.world.access_door import AccessDoor
from simulator.world.process import Process

_READ_SIZE = 1 << 16
_BLANK_MAGIC = struct.pack(">i", BLANK_MAGIC)


class LifeView:
    """Fulfils MemberView."""

    __slots__ = ("_process", "access", "life", "member_id", "replica", "store")

    def __init__(self, process: Process) -> None:
        self._process = process
        self.member_id = process.host.member_id
        self.life = process.life
        self.replica = process.replica
        self.store = process.store
        self.access = AccessDoor(process.store.tables.access_table)

    @property
    def role(self) -> Role:
        return self.replica.member.role

    @property
    def curr_term(self) -> Term:
        return self.replica.member.curr_term

    @property
    def leader_ready(self) -> bool:
        return self.replica.member.leader_ready

    @property
    def is_leader(self) -> bool:
        return self.replica.member.role is Role.LEADER

    @property
    def disk_uuid(self) -> bytes:
        return self.replica.formation.identity.disk_uuid

    @property
    def membership(self) -> Membership:
        return self.replica.member.membership

    @property
    def logged_membership(self) -> Membership:
        return self.replica.logged_membership()

    @property
    def membership_index(self) -> Index:
        return self.replica.log.memberships.last_index

    @property
    def acknowledgeable_index(self) -> Index:
        return self.replica.member.durable_index

    @property
    def committed_index(self) -> Index:
        return self.replica.member.committed_index

    @property
    def applied_index(self) -> Index:
        return self.store.reads.applied_index

    @property
    def is_state_whole(self) -> bool:
        return self.store.reads.is_state_whole

    @property
    def durable_index(self) -> Index:
        return self.replica.log.durable_index

    @property
    def ledger_begin_index(self) -> Index:
        return self.replica.log.ledger_begin_index

    @property
    def ledger_end_index(self) -> Index:
        return self.replica.log.ledger_end_index

    @property
    def has_faults(self) -> bool:
        return self.replica.log.has_faults

    @property
    def doubted(self) -> bool:
        return self.replica.member.doubted

    @property
    def faulty_ranges(self) -> tuple[FaultyRange, ...]:
        return self.replica.log.faulty.ranges

    @property
    def tail_lost_behind(self) -> Index | None:
        return self._process.host.tail_lost_behind

    @property
    def has_forgotten_begin(self) -> bool:
        return self._process.host.has_forgotten_begin

    @property
    def log_generation(self) -> int:
        return self.replica.log.log_generation

    @property
    def is_cutting(self) -> bool:
        return self.replica.log.is_cutting

    @property
    def scrub_rounds(self) -> int:
        return self.replica.scrubber.rounds

    @property
    def now_us(self) -> int:
        return self._process.host.loop.now_us

    @property
    def leader_heard_us(self) -> int | None:
        return self._process.leader_heard_us

    @property
    def transfer_target(self) -> str | None:
        return self.replica.member.transfer_target

    @property
    def told_at(self) -> tuple[Index, Index] | None:
        return self._process.told_at

    @property
    def durable_pos(self) -> int:
        return self.replica.log.durable_pos

    def first_unwritten_pos(self) -> int | None:
        positions = self._process.host.disk.unwritten_positions(f"{self.replica.config.directory}/data")
        log = self.replica.log
        return min(
            (pos for pos in positions if not log.faulty_at(pos) and not self._in_blank(pos)), default=None
        )

    def _in_blank(self, pos: int) -> bool:
        """The blank behind a file's last entry follows from the entries around it: whoever finds it wrong writes it
        anew, so that nothing is lost with it.
        """
        file_size = self._process.host.options.data_file_size
        start = pos - pos % file_size
        content = self._process.host.disk.content(f"{self.replica.config.directory}/data/{start:020d}") or b""
        offset = content.rfind(_BLANK_MAGIC, 0, pos - start + BLANK_HEADER_SIZE)
        while offset >= 0:
            if is_exact_blank(content[offset:]):
                return True
            offset = content.rfind(_BLANK_MAGIC, 0, offset)
        return False

    def term_at(self, index: Index) -> Term | None:
        return self.replica.log.term_at(index)

    def chain_at(self, index: Index) -> int | None:
        return self.replica.log.chain_at(index)

    def entries(self, first_index: Index, last_index: Index) -> Iterator[bytes]:
        next_index = first_index
        while next_index <= last_index:
            try:
                for batch in self.replica.log.batches_from(next_index, last_index, _READ_SIZE):
                    for index in range(batch.first_index, batch.last_index + 1):
                        yield batch.buffer[batch.offset_of(index) : batch.end_offset_of(index)]
                        next_index = Index(index + 1)
            except FaultyEntryError:
                # A leader may commit what is damaged here, for the others hold it: what that is the disk has forgotten,
                # and who damaged it has not.
                entry = self._stored_entry(next_index, self._process.host.damages)
                if entry is None:
                    return
                yield entry
                next_index = Index(next_index + 1)

    def stored_entry(self, index: Index, damaged_since_us: int) -> bytes | None:
        damages = self._process.host.damages
        return self._stored_entry(index, [damage for damage in damages if damage.done_us > damaged_since_us])

    def _stored_entry(self, index: Index, without: Sequence[Damage]) -> bytes | None:
        options = self._process.host.options
        raw = self._stored(
            "index", options.index_file_size, index * INDEX_UNIT_SIZE, INDEX_UNIT_SIZE, without
        )
        if raw is None or len(raw) < INDEX_UNIT_SIZE:
            return None
        unit = IndexUnit(*INDEX_UNIT.unpack(raw))
        return self._stored("data", options.data_file_size, unit.pos, unit.size, without)

    def _stored(
        self, name: str, file_size: int, offset: int, size: int, without: Sequence[Damage]
    ) -> bytes | None:
        start = offset - offset % file_size
        disk, path = self._process.host.disk, f"{self.replica.config.directory}/{name}/{start:020d}"
        content = disk.content(path)
        if content is None:
            return None
        return as_it_was(content, disk, path, without)[offset - start : offset - start + size]

    def unknown_damage(self) -> Iterator[Hashable]:
        host, log = self._process.host, self.replica.log
        if not host.is_damaged:
            return
        begin = log.ledger_begin_index, log.ledger_begin_pos
        for damage in host.damages:
            for offset in damage.changed_offsets(*begin):
                index = offset // INDEX_UNIT_SIZE
                if index > log.ledger_end_index if damage.is_of_index else offset >= log.ledger_end_pos:
                    break  # cut, and zeroed
                is_known = (
                    log.faulty.first_within(index, index) if damage.is_of_index else log.faulty_at(offset)
                )
                if not is_known:
                    # With the newest time: the same place may be damaged again after it was repaired.
                    newest_us = max(other.done_us for other in host.damages if other.overlaps(damage))
                    yield damage.path, damage.offset, newest_us
                    break

    def unit(self, topic: bytes, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        queue = self.store.queues.find(topic, queue_id)
        return queue.unit(queue_offset) if queue is not None else None

    def state(self) -> tuple[object, ...]:
        """Equal as long as nothing has changed that an invariant looks at."""
        member, log = self.replica.member, self.replica.log
        return (
            member.role,
            member.curr_term,
            member.committed_index,
            member.leader_ready,
            log.faulty.ranges,
            log.ledger_begin_index,
            log.ledger_end_index,
            log.log_generation,
            log.durable_index,
            log.memberships.last_index,
            member.durable_index,
            member.membership_index,
            self.store.reads.applied_index,
            member.transfer_target,
            self._process.told_at,
            self.replica.scrubber.rounds,
        )
