"""Has damaged entries repaired: which peer is asked for which of them, when, and how fast.

One request is under way at a time, and the bytes that come are limited per second, for a repair has all the time there
is: nobody is given a damaged entry meanwhile. Any peer will do, leader or not, for the chain proves what it sends. A
peer that has not got the entries, or has them damaged as well, is not asked again in the same round; when no peer is
left, the range waits, the member says so, and nothing is cut.
"""

import logging
from collections.abc import Callable

from dledger.config import DLedgerConfig
from dledger.core.messages import PeerId
from dledger.errors import FaultyEntryError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.jobs import DiskJob
from dledger.log.log_repair import RangeRepair, RepairJob, RepairRefusedError
from dledger.log.log_store import LogStore
from dledger.rpc.requests import RepairRequest, RepairResponse
from dledger.rpc.response_code import ResponseCode

log = logging.getLogger(__name__)


class Repairer:
    """Invariant: at most one of a request and a job is under way."""

    def __init__(
        self,
        config: DLedgerConfig,
        log_store: LogStore,
        send: Callable[[PeerId, RepairRequest], None],
        submit: Callable[[DiskJob], None],
    ) -> None:
        self.repaired_count = 0  # ranges, since the start
        self.repaired_size = 0  # bytes
        self.waits: dict[FaultyRange, str] = {}  # ranges that no peer could give, and why
        self._config = config
        self._log = log_store
        self._send = send
        self._submit = submit
        self._peers: list[PeerId] = []  # connected ones that know repairs
        self._repair: RangeRepair | None = None
        self._refusals: dict[PeerId, str] = {}  # in this round of the present range
        self._asked: tuple[PeerId, RepairRequest, int] | None = None  # and until when
        self._job: RepairJob | None = None
        self._request_id = 0
        self._next_ms = 0
        self._retry_ms = 0

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
        if self._asked is not None and self._asked[0] == peer:
            self._refused(peer, "its connection closed")

    def tick(self, now_ms: int) -> None:
        """Raises DiskError."""
        if not self._log.has_faults or self._job is not None:
            return
        if self._asked is not None:
            peer, _, until_ms = self._asked
            if now_ms >= until_ms:
                self._refused(peer, f"no answer within {self._config.repair_answer_ms_max} ms")
            return
        if self.waits and now_ms >= self._retry_ms:
            self.waits.clear()
        if now_ms >= self._next_ms:
            self._ask(now_ms)

    def _ask(self, now_ms: int) -> None:
        repair = self._current()
        if repair is None:
            return
        peer = next((peer for peer in self._peers if peer not in self._refusals), None)
        if peer is None:
            self._give_up(repair.faulty, now_ms)
            return
        self._request_id += 1
        request = RepairRequest(
            self._request_id,
            self._config.self_id,
            repair.next_index,
            repair.last_index,
            self._config.member_config.push_size_max,
        )
        self._asked = peer, request, now_ms + self._config.repair_answer_ms_max
        self._send(peer, request)

    def _current(self) -> RangeRepair | None:
        """The repair under way, or that of the next range."""
        ranges = self._log.faulty.ranges
        if self._repair is not None and self._repair.faulty in ranges:
            return self._repair
        self._repair = None
        self._refusals = {}
        faulty = next(
            (faulty for faulty in ranges if faulty not in self.waits and self._log.is_noted(faulty)), None
        )
        if faulty is not None:
            try:
                self._repair = self._log.range_repair(faulty)
            except FaultyEntryError:
                return None  # the range has just become a longer one
        return self._repair

    def _give_up(self, faulty: FaultyRange, now_ms: int) -> None:
        why = ", ".join(f"{peer}: {reason}" for peer, reason in self._refusals.items())
        self.waits[faulty] = why or "no peer is connected that could repair it"
        self._repair, self._retry_ms = None, now_ms + self._config.repair_retry_ms
        log.error(
            "[%s] damage stays, nothing is cut: %s; %s", self._config.self_id, faulty, self.waits[faulty]
        )

    def _refused(self, peer: PeerId, reason: str) -> None:
        self._asked = None
        self._refusals[peer] = reason

    def on_response(self, response: RepairResponse, entries: bytes, now_ms: int) -> None:
        """Raises DiskError."""
        if self._asked is None or self._repair is None:
            return
        peer, request, _ = self._asked
        if (response.member_id, response.request_id) != (peer, request.request_id):
            return  # an answer that came too late
        if response.code is not ResponseCode.SUCCESS:
            self._refused(peer, _REASONS.get(response.code, response.code.name))
            return
        self._asked = None
        self._next_ms = now_ms + len(entries) * 1000 // self._config.repair_bytes_per_second
        repair = self._repair
        if repair.faulty not in self._log.faulty.ranges:
            return  # it was cut or deleted meanwhile, or is larger now
        try:
            job = repair.take(response.first_pos, entries)
        except RepairRefusedError as error:
            log.error("[%s] repair refused peer=%s %s: %s", self._config.self_id, peer, repair.faulty, error)
            self._repair = None
            self._refused(peer, f"other bytes: {error}")
            self._repair = self._restarted(repair)
            return
        if job is not None:
            self._job = job
            self._submit(job)

    def _restarted(self, repair: RangeRepair) -> RangeRepair | None:
        try:
            return self._log.range_repair(repair.faulty)
        except FaultyEntryError:
            return None

    def owns(self, job: DiskJob) -> bool:
        return job is self._job

    def job_done(self) -> None:
        """The job under way has run without error."""
        job, repair = self._job, self._repair
        assert job is not None, "a job of a repair"
        assert repair is not None, "a job of a repair"
        self._job = None
        for mapped_file in job.held:
            mapped_file.release()
        self.repaired_size += job.size
        if repair.is_done:
            self._repair = None
            if repair.faulty in self._log.faulty.ranges:
                self._log.repaired(repair.faulty)
                self.repaired_count += 1
                log.warning(
                    "[%s] repaired %s size=%d", self._config.self_id, repair.faulty, repair.faulty.size
                )


_REASONS = {
    ResponseCode.DISK_ERROR: "damaged there, too",
    ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN: "deleted there",
    ResponseCode.INDEX_OUT_OF_RANGE: "not there yet",
}
