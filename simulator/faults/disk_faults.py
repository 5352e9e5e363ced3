"""Faults of whole disks beside all others: they hang, are full on several hosts at once, or fail a write or a sync.

None of these ends a process but a failed write or sync, which must. A kind counts when it was met: a full disk that
nobody wrote to was none.
"""

from random import Random

from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember

# Around the time after which a hanging disk ends a leadership (MemberConfig.stalled_sync_ms).
_HANG_US = (300_000, 9_000_000)
_FULL_US = (200_000, 6_000_000)


class DiskFaults:
    def __init__(
        self, loop: EventLoop, members: list[SimMember], options: Options, random: Random, faults: Faults
    ) -> None:
        self._loop = loop
        self._members = members
        self._options = options
        self._random = random
        self._faults = faults

    def start(self) -> None:
        self._faults.recur(self._random, self._options.disk_fault_interval_ms, self._one)

    def _one(self) -> None:
        make = self._random.choices(
            (self._hang, self._fill, self._refuse_a_write, self._fail_a_sync), (6, 8, 1, 2)
        )[0]
        make()

    def _hang(self) -> None:
        """What is under way is done yet; nothing that comes after it is."""
        member = self._victim()
        disk = member.disk
        duration_us = self._draw_us(_HANG_US)
        disk.hangs_until_us = max(disk.hangs_until_us, self._loop.now_us + duration_us)
        hung_before = disk.hung_runs
        member.trace.add(self._loop.now_us, "fault disk_hang at {} for {} us", member.member_id, duration_us)

        def count() -> None:
            if disk.hung_runs > hung_before:
                self._faults.happened["disk_hang"] += 1

        self._loop.call_later(duration_us, count)

    def _fill(self) -> None:
        """Of one member, some, or all."""
        random = self._random
        count = random.choice((1, 1, len(self._members) // 2 + 1, len(self._members)))
        first = self._victim()
        others = [member for member in self._members if member is not first]
        full = [first, *random.sample(others, count - 1)]
        disks = [member.disk for member in full]
        refused_before = sum(disk.refused_for_space for disk in disks)
        duration_us = self._draw_us(_FULL_US)
        for member in full:
            member.disk.is_full = True
            member.trace.add(self._loop.now_us, "fault disks_full at {}", member.member_id)

        def empty() -> None:
            if not self._faults.is_healed:  # else all were, and what is full by now is a trial's
                for disk in disks:
                    disk.is_full = False
            if sum(disk.refused_for_space for disk in disks) > refused_before:
                self._faults.happened["all_disks_full" if count == len(self._members) else "disks_full"] += 1

        self._loop.call_later(duration_us, empty)

    def _refuse_a_write(self) -> None:
        member = self._victim()
        if member.process is None or self._faults.is_majority_away():
            return
        member.may_fail = True
        disk = member.disk
        disk.failing_writes = 1

        def count() -> None:
            if not disk.failing_writes:
                self._faults.happened["failed_write"] += 1

        self._loop.call_later(1_000_000, count)

    def _fail_a_sync(self) -> None:
        """Of the log, where it matters most that nothing is acknowledged after it."""
        member = self._victim()
        if member.process is None or self._faults.is_majority_away():
            return
        member.may_fail = True
        disk = member.disk
        disk.failing_log_syncs = 1

        def count() -> None:
            if not disk.failing_log_syncs:
                self._faults.happened["failed_log_sync"] += 1

        self._loop.call_later(1_000_000, count)

    def _victim(self) -> SimMember:
        """Half of all faults meet the leader."""
        leaders = [
            member for member in self._members if member.process is not None and member.process.store.serving
        ]
        return self._random.choice(leaders if leaders and self._random.random() < 0.5 else self._members)

    def _draw_us(self, bounds: tuple[int, int]) -> int:
        low, high = bounds
        return int(low * (high / low) ** self._random.random())
