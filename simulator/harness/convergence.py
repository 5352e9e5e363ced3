"""The end of a run: with all faults gone the group serves again, and all members come to hold the same.

Here everything is compared, not only what has changed: logs byte by byte, ConsumeQueues unit by unit, each message as a
consumer pulls it, and the replicated tables.
"""

from collections.abc import Callable

from dledger.core.output import Role
from dledger.entry import Index
from dledger.scrubber import DEFAULT_BYTES_PER_SECOND
from simulator.faults.faults import Faults
from simulator.harness.oracle import Oracle, uids_with_key_of
from simulator.invariants.invariant import ViolationError
from simulator.world.event_loop import EventLoop
from simulator.world.pops import Pops
from simulator.world.process import Process
from simulator.world.sim_member import SimMember
from simulator.world.transactions import Transactions
from simulator.world.workload import Workload, query_and_compare, read_and_compare

_NAME = "convergence"
# Longer than a disk that hung when the faults ended, a silence, an election and a transfer take together.
_LIMIT_US = 30_000_000
_PROBE_INTERVAL_US = 100_000


class Convergence:
    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        oracle: Oracle,
        workload: Workload,
        transactions: Transactions,
        pops: Pops,
        faults: Faults,
    ) -> None:
        self._loop = loop
        self._faults = faults
        self._members = members
        self._oracle = oracle
        self._workload = workload
        self._transactions = transactions
        self._pops = pops

    def run(self) -> None:
        """Raises ViolationError."""
        healed_us = self._loop.now_us
        self._probe(healed_us)
        is_served = self._loop.run_until(
            self._loop.now_us + _LIMIT_US, lambda: self._workload.last_acknowledged_put_us >= healed_us
        )
        if not is_served:
            self._empty_who_keeps_all_from_leading()
            self._wait(
                lambda: self._workload.last_acknowledged_put_us >= healed_us,
                "no message put since is acknowledged",
                limit_us=_LIMIT_US + self._send_us(),
            )
        self._wait(
            self._has_sound_units,
            "damaged units of ConsumeQueues are not mended",
            limit_us=_LIMIT_US + self._scrub_us(),
        )
        self._wait(
            lambda: self._oracle.delivered_count >= len(self._oracle.waiting),
            "delayed messages are not delivered",
        )
        self._wait(self._has_ended_all, "transactions are undecided")
        self._transactions.check_ended()
        self._wait(lambda: not self._oracle.timers_left, "timer messages are not delivered")
        self._pops.drain()
        self._wait(
            self._pops.is_drained,
            "messages are left that nobody has popped, or that are in flight",
            limit_us=_LIMIT_US + self._clocks_us(),
        )
        self._pops.check_drained()
        self._wait(
            self._is_at_rest,
            "the members do not come to hold the same",
            limit_us=_LIMIT_US + self._repair_us() + self._send_us() + self._busy_us(),
        )
        self._workload.check_told()
        self.compare()

    def _has_ended_all(self) -> bool:
        return any(
            member.process is not None
            and member.process.store.serving
            and member.process.store.services.transaction_service.pending_count == 0
            for member in self._members
        )

    def _probe(self, healed_us: int) -> None:
        """Puts messages until one is acknowledged."""
        if self._workload.last_acknowledged_put_us < healed_us:
            for member in self._members:
                if member.process is not None and member.process.store.serving:
                    self._workload.put(member, 1)
            self._loop.call_later(_PROBE_INTERVAL_US, self._probe, healed_us)

    def _empty_who_keeps_all_from_leading(self) -> None:
        """As an operator has to (docs/membership.md): a member without a seat that holds more than all others, of whom
        one is doubted. Not while somebody leads, who may have much to send before what was put last.
        """
        replicas = {member: member.process.replica for member in self._members if member.process is not None}
        if any(replica.member.role is Role.LEADER for replica in replicas.values()):
            return
        for member, replica in replicas.items():
            others = [other for other in replicas.values() if other is not replica]
            ends = [(other.log.ledger_end_term, other.log.ledger_end_index) for other in others]
            is_ahead = all((replica.log.ledger_end_term, replica.log.ledger_end_index) > end for end in ends)
            if not replica.member.has_seat and is_ahead and any(other.member.doubted for other in others):
                self._faults.happened["emptied_by_hand"] += 1
                member.end_process()
                member.wipe()
                member.start()
                return

    def _wait(self, is_done: Callable[[], bool], complaint: str, *, limit_us: int = _LIMIT_US) -> None:
        if not self._loop.run_until(self._loop.now_us + limit_us, is_done):
            raise ViolationError(
                _NAME, f"{limit_us // 1_000} ms after the last fault {complaint}", is_liveness=True
            )

    def _scrub_us(self) -> int:
        """What is left of a round and a whole one take, at the rate of the scrub."""
        return max(
            2_000_000
            * member.process.replica.scrubber.status().size
            // (member.options.scrub_bytes_per_second or DEFAULT_BYTES_PER_SECOND)
            for member in self._members
            if member.process is not None
        )

    def _repair_us(self) -> int:
        """What it takes at most to bring whole logs back."""
        processes = [member.process for member in self._members if member.process is not None]
        return max((_repair_us(process) for process in processes if process.host.is_damaged), default=0)

    def _send_us(self) -> int:
        """What it takes at most to send what some have not got: an entry a round trip, with a sync."""
        processes = [member.process for member in self._members]
        ends = [process.replica.log.ledger_end_index if process is not None else -1 for process in processes]
        options = self._members[0].options
        return (max(ends) - min(ends)) * 2 * (options.delay_us_max + options.sync_latency_us_max)

    def _clocks_us(self) -> int:
        """What clocks differ by at most: a message is in flight until a time by the clock of who led then."""
        return max(2_000 * member.options.clock_skew_ms_max for member in self._members)

    def _busy_us(self) -> int:
        """For how long jobs go on that are under way: one that began on a slow disk may have many files to sync."""
        return max(0, *(member.disk.busy_until_us - self._loop.now_us for member in self._members))

    def _has_sound_units(self) -> bool:
        return all(_has_sound_units(member.process) for member in self._members if member.process is not None)

    def _is_at_rest(self) -> bool:
        processes = [member.process for member in self._members]
        leaders = [process for process in processes if process is not None and process.store.serving]
        if len(leaders) != 1:
            return False
        end_index = leaders[0].replica.log.ledger_end_index
        return all(
            process is not None
            and _is_at(process, end_index)
            and process.replica.member.has_seat
            and _is_undamaged(process)
            for process in processes
        )

    def compare(self) -> None:
        """Raises ViolationError at the first difference."""
        processes = [member.process for member in self._members if member.process is not None]
        for process in processes:
            self._compare_log(processes[0], process)
            self._compare_queues(process)
            if process.host.options.has_keys:
                self._compare_keys(process)
            if _tables(process) != _tables(processes[0]):
                self._fail(
                    process, f"has tables {_tables(process)}, {_id(processes[0])} {_tables(processes[0])}"
                )
        for acknowledged in self._oracle.acknowledged:
            for uid, (_, _, phy_offset) in zip(acknowledged.uids, acknowledged.places, strict=True):
                for process in processes:
                    if phy_offset < process.replica.log.ledger_begin_pos:
                        continue  # retention took it
                    if process.store.reads.look_message_by_offset(phy_offset) is None:
                        self._fail(process, f"has no message {uid} at {phy_offset}, which is acknowledged")

    def _compare_log(self, first: Process, other: Process) -> None:
        one, another = first.replica.log, other.replica.log
        if another.ledger_end_pos != one.ledger_end_pos:
            self._fail(other, f"ends at {another.ledger_end_pos}, {_id(first)} at {one.ledger_end_pos}")
        size = other.host.options.data_file_size
        begin_pos = max(one.ledger_begin_pos, another.ledger_begin_pos)
        for pos in range(begin_pos, one.ledger_end_pos, size):
            path = f"data/{pos:020d}"
            length = min(size, one.ledger_end_pos - pos)
            contents = [
                process.host.disk.read_file(f"{process.host.config.directory}/{path}")[:length]
                for process in (first, other)
            ]
            if contents[0] != contents[1]:
                self._fail(other, f"has other bytes in {path} than {_id(first)}")

    def _compare_queues(self, process: Process) -> None:
        queues = process.store.queues
        known = {(queue.topic, queue.queue_id): queue.max_offset for queue in queues if queue.max_offset}
        wanted = {key: len(messages) for key, messages in self._oracle.queues.items()}
        if known != wanted:
            self._fail(process, f"has queues {known}, the log {wanted}")
        for key, messages in self._oracle.queues.items():
            offset = self._oracle.deleted_count(key, process.replica.log.ledger_begin_index)
            min_offset = process.store.reads.min_offset(key[0].decode(), key[1])
            if min_offset > offset:
                self._fail(process, f"has lost messages {offset} to {min_offset} of {key}")
            while offset < len(messages):
                count = read_and_compare(process, self._oracle, key, offset)
                if count == 0:
                    self._fail(process, f"gives out nothing at offset {offset} of {key}")
                offset += count

    def _compare_keys(self, process: Process) -> None:
        topics = {topic for topic, _ in self._oracle.queues}
        for uid in {uids_with_key_of(uid).start for uid in self._oracle.messages_of_uid}:
            for topic in topics:
                query_and_compare(process, self._oracle, topic, uid)

    def _fail(self, process: Process, text: str) -> None:
        raise ViolationError(_NAME, f"{_id(process)} {text}")


def _is_at(process: Process, end_index: Index) -> bool:
    log = process.replica.log
    return (
        log.ledger_end_index
        == log.durable_index
        == process.replica.member.committed_index
        == process.store.reads.applied_index
        == end_index
        and process.store.index.behind == 0
    )


def _repair_us(process: Process) -> int:
    """A push a round trip, each with syncs of what is repaired and of what is left."""
    options, log = process.host.options, process.replica.log
    pushes = (log.ledger_end_pos - log.ledger_begin_pos) // options.push_size_max + 1
    return pushes * 4 * (options.delay_us_max + options.sync_latency_us_max)


def _has_sound_units(process: Process) -> bool:
    """Else a scrub is to come by, which an operator may have to ask for."""
    if process.host.has_damaged_units:
        process.replica.scrubber.start_round(process.host.now_ms())
        return False
    return True


def _is_undamaged(process: Process) -> bool:
    """What nobody has read yet is looked at here, as the scrub does in its time."""
    if not _has_sound_units(process):
        return False
    host, log = process.host, process.replica.log
    if host.is_damaged and not log.has_faults:
        log.fault_found(log.ledger_begin_index, log.ledger_end_index)
    begin = log.ledger_begin_index, log.ledger_begin_pos
    # What shows no more and may come back by a power loss is found then: the blank of a file, whose sync has failed.
    remains = host.is_damaged and any(damage.shows_behind(*begin) for damage in host.damages)
    return not remains and not log.has_faults


def _id(process: Process) -> str:
    return process.host.member_id


def _tables(process: Process) -> tuple[object, ...]:
    return tuple((table.name, table.rows(), table.data_version) for table in process.store.tables.all)
