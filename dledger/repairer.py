"""Has damaged entries repaired: which peer is asked for which of them, when, and how fast.

One request is under way at a time, and the bytes that come are limited per second, for a repair has all the time there
is: nobody is given a damaged entry meanwhile. Any peer will do, leader or not, for the chain proves what it sends. A
peer that has not got the entries, or has them damaged as well, is not asked again in the same round; what it gave in
front of those may be gone on with by what lies here itself, but not by another one, whose history may have parted from
its. When no peer is left, the range waits, the member says so, and nothing is cut.

What nobody can give any more, because it went by the others' retention, would be waited for for ever: then this log is
to begin behind it, where one of theirs does. And what the group never committed nobody has to give: where the leader's
history does not lead to the entry behind the damage, the log is to be cut there. Where a peer's committed entries do
not follow from the one in front, that one is of an earlier history, and damage as well: how many there are of those,
its entries in front of them tell. A leader of which nobody has what it would have to give next is told so, and lets
another lead.
"""

import logging
from collections.abc import Callable, Mapping, Set
from typing import Final

import msgspec

from disk.disk import NoSpaceError
from disk.mapped_file_queue import file_name
from dledger.config import DLedgerConfig
from dledger.core.messages import LedgerBegin, PeerId
from dledger.entry import Index, Term
from dledger.errors import FaultyEntryError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.front_search import FrontSearch
from dledger.log.jobs import DiskJob
from dledger.log.log_repair import (
    NotContinuedError,
    NotLinkedError,
    RangeRepair,
    RepairJob,
    RepairRefusedError,
)
from dledger.log.log_store import LogStore
from dledger.log.range_growth import RangeGrowth
from dledger.repair_status import RangeStatus, RepairStage, RepairStatus
from dledger.rpc.requests import RepairRequest, RepairResponse
from dledger.rpc.response_code import ResponseCode

log = logging.getLogger(__name__)

_REASONS: Final = {
    ResponseCode.DISK_ERROR: "damaged there, too",
    ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN: "deleted there",
    ResponseCode.INDEX_OUT_OF_RANGE: "not there yet",
}

LedBy = tuple[Term, PeerId | None]


class _Refusal(msgspec.Struct, frozen=True):
    reason: str
    cannot_give: bool = False  # as the peer itself says; else it may in another round
    has_other: bool = False  # its bytes are not those that lay here
    # Under which term and leader, if that peer itself led when it said that its history is another than this log's: it
    # ends before the damage does, or does not lead into it or on behind it.
    parted: LedBy | None = None
    begin: LedgerBegin | None = None  # of a peer that has deleted what it was asked for


class Repairer:
    """Invariant: at most one of a request and a job is under way."""

    def __init__(
        self,
        config: DLedgerConfig,
        log_store: LogStore,
        send: Callable[[PeerId, RepairRequest], None],
        submit: Callable[[DiskJob], None],
        begin_at: Callable[[LedgerBegin, Set[PeerId]], bool],
        cut_at: Callable[[Index, int], None],
        nobody_has: Callable[[FaultyRange, int], None],
        committed_index: Callable[[], Index],
        led_by: Callable[[], LedBy],
    ) -> None:
        """`begin_at`: whether the log begins there from now on, since none of these peers has what is damaged in front.
        `cut_at`: to be cut from this entry on, for the leader's history is another there; with the time. `nobody_has`:
        no peer that is connected; with the time. All three are asked again in each round. `committed_index`: as far as
        is known here. `led_by`: the term, and who leads in it, likewise.
        """
        self.repaired_count = 0  # ranges, since the start
        self.begun_behind_count = 0  # ranges that nobody had any more, since the start
        self.repaired_size = 0  # bytes
        # Ranges that no peer could give, or that found no space here, and why.
        self.waits: dict[FaultyRange, Mapping[PeerId, str]] = {}
        self._config = config
        self._log = log_store
        self._growth = RangeGrowth(log_store)
        self._send = send
        self._submit = submit
        self._begin_at = begin_at
        self._cut_at = cut_at
        self._nobody_has = nobody_has
        self._committed_index = committed_index
        self._led_by = led_by
        self._peers: list[PeerId] = []  # connected ones that know repairs
        self._repair: RangeRepair | None = None
        self._refusals: dict[PeerId, _Refusal] = {}  # in this round of the present range
        self._giver: PeerId | None = None  # whose entries are being proved
        # The peer that is asked how far back it has something else in front of the present range, and its refusal.
        self._search: tuple[FrontSearch, PeerId, _Refusal] | None = None
        self._asked: tuple[PeerId, RepairRequest, int] | None = None  # and until when
        self._job: RepairJob | None = None
        self._found_short: list[int] = []  # positions where files end that a job found too short
        self._written_size = 0  # of the present range
        self._has_written = False  # some of a range, which may have grown since, and not yet all of it
        self._request_id = 0
        self._next_ms = 0
        self._retry_ms = 0
        self._since: dict[FaultyRange, int] = {}

    @property
    def idle(self) -> bool:
        """No job is under way."""
        return self._job is None

    def peer_connected(self, peer: PeerId) -> None:
        if peer not in self._peers:
            self._peers.append(peer)
        self.waits.clear()  # it may have what the others had not

    def peer_disconnected(self, peer: PeerId) -> None:
        if peer in self._peers:
            self._peers.remove(peer)
        is_asked = self._asked is not None and self._asked[0] == peer
        if is_asked or (self._search is not None and self._search[1] == peer):
            self._refused(peer, _Refusal("its connection closed"))

    def tick(self, now_ms: int) -> None:
        """Raises DiskError."""
        if self._found_short:
            self._look_where_short(now_ms)
        if self._since or self._log.has_faults:
            self._follow(now_ms)
        if not self._log.has_faults or self._job is not None:
            return
        if self._asked is not None:
            peer, _, until_ms = self._asked
            if now_ms >= until_ms:
                self._refused(peer, _Refusal(f"no answer within {self._config.repair_answer_ms_max} ms"))
            return
        if self.waits and now_ms >= self._retry_ms:
            self.waits.clear()
        if now_ms >= self._next_ms:
            self._ask(now_ms)

    def _look_where_short(self, now_ms: int) -> None:
        """Entries that a file has no more are damaged, and a blank is written anew. Raises DiskError."""
        assert self._repair is not None, "its job found that"
        faulty, self._repair = self._repair.faulty, None
        ends, self._found_short = self._found_short, []
        before = self._log.faulty.ranges
        for pos in ends:
            self._log.fault_found_at(pos)
        ranges = self._log.faulty.ranges
        # As long as what the file has no more is not noted, the next job would find it too short as well.
        if ranges == before and self._log.is_noted(faulty) and not all(map(self._log.is_noted, ranges)):
            self._wait_for_space(faulty, "damage behind it cannot be noted", now_ms)

    def _wait_for_space(self, faulty: FaultyRange, why: str, now_ms: int) -> None:
        log.error("[%s] damage stays: %s; %s", self._config.self_id, faulty, why)
        self.waits[faulty] = {self._config.self_id: "no space on its disk"}
        self._repair, self._retry_ms = None, now_ms + self._config.repair_retry_ms

    def _follow(self, now_ms: int) -> None:
        """A range that has grown is known for as long as its oldest part."""
        before, ranges = self._since, self._log.faulty.ranges
        if before.keys() != set(ranges):
            self._since = {
                new: min((since for old, since in before.items() if _touch(old, new)), default=now_ms)
                for new in ranges
            }

    def status(self) -> RepairStatus:
        return RepairStatus(
            self.repaired_count, self.repaired_size, tuple(map(self._status_of, self._log.faulty.ranges))
        )

    def _status_of(self, faulty: FaultyRange) -> RangeStatus:
        file_size = self._log.config.data_file_size
        first_file = faulty.pos - faulty.pos % file_size
        repair = self._repair if self._repair is not None and self._repair.faulty == faulty else None
        peer, refusals = None, self.waits.get(faulty, {})
        if repair is not None:
            stage = RepairStage.WRITING if repair.is_proved else RepairStage.PROVING
            peer, refusals = (self._asked[0] if self._asked is not None else None), _told(self._refusals)
        elif faulty in self.waits:
            stage = RepairStage.WAITING
        else:
            stage = RepairStage.QUEUED if self._log.is_noted(faulty) else RepairStage.NOTING
        return RangeStatus(
            faulty,
            tuple(file_name(offset) for offset in range(first_file, faulty.next_pos, file_size)),
            self._since.get(faulty),
            stage,
            peer,
            refusals,
            self._written_size if repair is not None else 0,
            self._retry_ms if stage is RepairStage.WAITING else None,
        )

    def _ask(self, now_ms: int) -> None:
        """Raises DiskError."""
        repair = self._current()
        if repair is None:
            return
        if repair.is_here_next:
            self._take_here(repair, now_ms)
            return
        peer = self._next_peer(repair)
        if peer != self._giver and not repair.is_proved and not repair.is_at_begin:
            self._go_on_without_giver(repair)
            return
        if peer is None:
            self._give_up(repair.faulty, now_ms)
            return
        if not repair.is_proved:
            self._giver = peer
        wanted = self._search[0] if self._search is not None else repair
        self._request_id += 1
        request = RepairRequest(
            self._request_id,
            self._config.self_id,
            wanted.next_index,
            wanted.last_index,
            self._config.member_config.push_size_max,
        )
        self._asked = peer, request, now_ms + self._config.repair_answer_ms_max
        self._send(peer, request)

    def _next_peer(self, repair: RangeRepair) -> PeerId | None:
        """To be asked; in a search, whom it began with. What nothing but its being committed proves comes from the
        leader, also after peers have come and gone: others may have something else there.
        """
        if self._search is not None:
            return self._search[1]
        _, leader_id = self._led_by()
        for peer in self._peers:
            if peer in self._refusals:
                continue
            if repair.committed_index is None or peer == leader_id:
                return peer
            self._refusals[peer] = _Refusal("does not lead")
        return None

    def _current(self) -> RangeRepair | None:
        """The repair under way, or that of the next range."""
        ranges = self._log.faulty.ranges
        is_outdated = self._search is not None and self._search[0].is_outdated
        if self._repair is not None and self._repair.faulty in ranges and not is_outdated:
            return self._repair
        self._repair, self._search = None, None
        self._refusals = {}
        self._written_size = 0
        faulty = next(
            (faulty for faulty in ranges if faulty not in self.waits and self._log.is_noted(faulty)), None
        )
        if faulty is not None:
            self._repair = self._growth.repair_of(faulty)
        return self._repair

    def _give_up(self, faulty: FaultyRange, now_ms: int) -> None:
        if self._has_written and self._shrink(faulty):
            return
        why = ", ".join(f"{peer}: {refusal.reason}" for peer, refusal in self._refusals.items())
        begin = self._begin_behind(faulty)
        without = {peer for peer, refusal in self._refusals.items() if refusal.cannot_give}
        if begin is not None and self._begin_at(begin, without):
            self.begun_behind_count += 1
            log.warning("[%s] log begins behind damage %s; %s", self._config.self_id, faulty, why)
            self._repair = None
            return
        if self._led_by() in {refusal.parted for refusal in self._refusals.values()}:
            if faulty.first_index <= self._committed_index() < faulty.last_index:
                self._repair_committed(faulty)
                return
            self._cut_at(faulty.first_index, now_ms)
            if faulty not in self._log.faulty.ranges:
                self._repair = None
                return
        if self._refusals and all(one.cannot_give or one.has_other for one in self._refusals.values()):
            self._nobody_has(faulty, now_ms)
        self.waits[faulty] = _told(self._refusals)
        self._repair, self._retry_ms = None, now_ms + self._config.repair_retry_ms
        log.error(
            "[%s] damage stays: %s; %s",
            self._config.self_id,
            faulty,
            why or "no peer is connected that could repair it",
        )

    def _repair_committed(self, faulty: FaultyRange) -> None:
        """The leader has what of the range is committed, although its history is another in the rest. DiskError."""
        self._written_size, self._refusals = 0, {}
        try:
            self._repair = self._log.range_repair(faulty, self._committed_index())
        except FaultyEntryError:
            self._repair = None

    def _shrink(self, faulty: FaultyRange) -> bool:
        """Whether less of it is damaged than was: pieces were written before their peers went or it grew, and may have
        been all that was wrong. No peer need have the rest of it, if that is sound here.
        """
        self._log.repaired_in_part(faulty)
        self._has_written = False
        if faulty in self._log.faulty.ranges:
            return False
        self._repair = None
        if self._log.faulty.first_within(faulty.first_index, faulty.last_index) is None:
            self._count_repaired(faulty)
        return True

    def _begin_behind(self, faulty: FaultyRange) -> LedgerBegin | None:
        """Where the log may begin because no peer that can be reached can give the range: the first begin of theirs."""
        if not all(self._refusals[peer].cannot_give for peer in self._peers):
            return None
        begins = [refusal.begin for refusal in self._refusals.values() if refusal.begin is not None]
        begins = [begin for begin in begins if begin.before_index >= faulty.first_index]
        return min(begins, key=lambda begin: begin.before_index, default=None)

    def _refused(self, peer: PeerId, refusal: _Refusal) -> None:
        self._asked = None
        if self._search is not None:  # it has come to nothing, and what began it counts
            text = "[%s] peer=%s does not tell where what is in front becomes another: %s"
            log.warning(text, self._config.self_id, peer, refusal.reason)
            _, peer, refusal = self._search
            self._search = None
        self._refusals[peer] = refusal

    def on_response(self, response: RepairResponse, entries: bytes, now_ms: int) -> None:
        """Raises DiskError."""
        if self._asked is None or self._repair is None:
            return
        peer, request, _ = self._asked
        if (response.member_id, response.request_id) != (peer, request.request_id):
            return  # an answer that came too late
        if self._search is not None and self._search[0].is_outdated:
            self._asked = None
            return
        if response.code is not ResponseCode.SUCCESS:
            if self._search is not None and response.code in _REASONS and self._is_asked_on(response.begin):
                return
            reason = _REASONS.get(response.code)
            cannot_give = reason is not None
            parted = self._parted_from(peer) if response.code is ResponseCode.INDEX_OUT_OF_RANGE else None
            why = reason or response.code.name
            self._refused(peer, _Refusal(why, cannot_give, parted=parted, begin=response.begin))
            return
        self._asked = None
        self._next_ms = now_ms + len(entries) * 1000 // self._config.repair_bytes_per_second
        repair = self._repair
        if repair.faulty not in self._log.faulty.ranges:
            return  # it was cut or deleted meanwhile, or is larger now
        if self._search is not None:
            self._take_in_front(self._search[0], peer, response.first_pos, entries)
            return
        try:
            job = repair.take(response.first_pos, entries)
        except RepairRefusedError as error:
            if isinstance(error, NotLinkedError) and self._growth.grow_behind(repair.faulty):
                return  # the peer's bytes may be right; the longer range asks for them again
            log.error("[%s] repair refused peer=%s %s: %s", self._config.self_id, peer, repair.faulty, error)
            is_other = isinstance(error, NotLinkedError | NotContinuedError)
            led_by = self._parted_from(peer)
            # Where that is about what is committed, nothing is to be cut by it.
            parted = led_by if is_other and repair.committed_index is None else None
            refusal = _Refusal(f"not taken: {error}", has_other=is_other, parted=parted)
            self._repair = self._restarted(repair)
            if not isinstance(error, NotContinuedError) or not self._search_in_front(repair, peer, refusal):
                self._refused(peer, refusal)
            return
        if job is not None:
            self._job = job
            self._submit(job)

    def _go_on_without_giver(self, repair: RangeRepair) -> None:
        """Whose entries were being proved gives no more of them. Raises DiskError."""
        assert self._giver is not None, "something is proved"
        if repair.goes_on_here():
            self._refusals.pop(self._giver, None)  # it is to give once more what it has
        else:
            self._repair = self._restarted(repair)

    def _take_here(self, repair: RangeRepair, now_ms: int) -> None:
        """Raises DiskError."""
        try:
            job = repair.take_here()
        except RepairRefusedError as error:
            log.error("[%s] repair begins anew %s: %s", self._config.self_id, repair.faulty, error)
            self._repair = self._restarted(repair)
            return
        self._next_ms = now_ms + job.entries_size * 1000 // self._config.repair_bytes_per_second
        self._job = job
        self._submit(job)

    def _search_in_front(self, repair: RangeRepair, peer: PeerId, refusal: _Refusal) -> bool:
        """Whether the peer is asked on, for it may tell where what its committed entries do not continue begins.
        Raises DiskError.
        """
        if repair.faulty.first_index > self._committed_index():
            return False
        try:
            search = FrontSearch(self._log, repair.faulty, repair.committed_index)
        except FaultyEntryError:
            return False
        self._search = search, peer, refusal
        return True

    def _is_asked_on(self, begin: LedgerBegin | None) -> bool:
        """Whether the peer, which has not got what it was asked for in a search, is to be asked for more. DiskError."""
        assert self._search is not None, "under way"
        search, _, _ = self._search
        try:
            is_asked_on = search.not_given(begin)
        except FaultyEntryError:
            return False
        if is_asked_on:
            self._asked = None
        return is_asked_on

    def _take_in_front(self, search: FrontSearch, peer: PeerId, first_pos: int, entries: bytes) -> None:
        """Raises DiskError."""
        try:
            search.take(first_pos, entries)
        except (RepairRefusedError, FaultyEntryError) as error:
            if self._repair is not None and isinstance(error, NotLinkedError):
                self._growth.grow_behind(self._repair.faulty)
            self._refused(peer, _Refusal(str(error)))
            return
        if search.wider is not None:
            text = "[%s] what is in front is not the group's %s; proved by %s"
            log.warning(text, self._config.self_id, search.wider, peer)
            self._log.widen(search.wider)
            self._repair, self._search = None, None

    def _parted_from(self, peer: PeerId) -> LedBy | None:
        """Who leads, if that is the one who has just told of another history."""
        led_by = self._led_by()
        return led_by if led_by[1] == peer else None

    def _restarted(self, repair: RangeRepair) -> RangeRepair | None:
        self._written_size = 0
        try:
            return self._log.range_repair(repair.faulty)
        except FaultyEntryError:
            return None

    def job_done(self, error: NoSpaceError | None, now_ms: int) -> None:
        """The job under way has run without error, or found no space: a file may have holes where others have bytes."""
        job, repair = self._job, self._repair
        assert job is not None, "a job of a repair"
        assert repair is not None, "a job of a repair"
        self._job = None
        for mapped_file in job.held:
            mapped_file.release()
        if error is not None:
            # What was written of it counts only once all is, for nothing of it was synced.
            self._wait_for_space(repair.faulty, str(error), now_ms)
            return
        if job.found_short:
            self._found_short = [mapped_file.file_from_offset + size for mapped_file, size in job.found_short]
            return  # looked at in the next tick
        self.repaired_size += job.size
        self._written_size += job.entries_size
        self._has_written = True
        if repair.is_done:
            self._repair = None
            faulty = repair.faulty
            if faulty not in self._log.faulty.ranges:
                left = self._log.faulty.first_within(faulty.first_index, faulty.last_index)
                self._has_written = left is not None
                return
            self._has_written = False
            if repair.committed_index is not None:
                self._log.repaired_up_to(faulty, repair.committed_index, repair.next_pos)
                return
            self._log.repaired(faulty)
            self._count_repaired(faulty)

    def _count_repaired(self, faulty: FaultyRange) -> None:
        self.repaired_count += 1
        log.warning("[%s] repaired %s size=%d", self._config.self_id, faulty, faulty.size)


def _told(refusals: Mapping[PeerId, _Refusal]) -> dict[PeerId, str]:
    return {peer: refusal.reason for peer, refusal in refusals.items()}


def _touch(one: FaultyRange, other: FaultyRange) -> bool:
    return one.first_index <= other.last_index and other.first_index <= one.last_index
