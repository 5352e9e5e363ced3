"""Faults of time: wall clocks that are set by up to hours, processes and hosts that stand still, beside all others.

A wall clock that was set wrong is right again when the next process starts on its host. A group in which one starts
under a wrong clock is not what these are about: its log then has the times of that clock.
"""

from random import Random

from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember
from simulator.world.sim_network import SILENCE_US, SimNetwork

_JUMP_MS_MAX = 8 * 3_600_000
_STAND_STILL_US = (100_000, 10_000_000)
# Of one process: what clocks differ by at the end of a run, messages are delivered late by.
_SUSPENDED_US_MAX = 10_000_000


class ClockFaults:
    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        network: SimNetwork,
        options: Options,
        random: Random,
        faults: Faults,
    ) -> None:
        self._loop = loop
        self._members = members
        self._network = network
        self._options = options
        self._jumps = Random(random.random())
        self._stills = Random(random.random())
        self._faults = faults

    def start(self) -> None:
        self._faults.recur(self._jumps, self._options.clock_jump_interval_ms, self._jump)
        self._faults.recur(self._stills, self._options.stand_still_interval_ms, self._stand_still)

    def _jump(self) -> None:
        """Forwards or backwards: milliseconds are as likely as hours."""
        random = self._jumps
        member = random.choice(self._members)
        jump_ms = random.choice((-1, 1)) * int(_JUMP_MS_MAX ** random.random())
        member.clock.jump(jump_ms)
        if member.process is not None:
            self._faults.happened["clock_jump"] += 1
            member.trace.add(self._loop.now_us, "clock of {} set by {} ms", member.member_id, jump_ms)

    def _stand_still(self) -> None:
        """Stopped as by SIGSTOP, or with its whole host, whose monotonic clock stands still as well."""
        faults, random = self._faults, self._stills
        member = random.choice(self._members)
        low, high = _STAND_STILL_US
        duration_us = int(low * (high / low) ** random.random())
        is_suspended = random.random() < 0.5
        # Clocks that differ by seconds anyway would differ by more than the end of a run waits.
        is_suspended = is_suspended and self._options.clock_skew_ms_max <= 1_000
        process = member.process
        if process is not None and not member.is_paused and not faults.is_majority_away():
            if member.clock.suspended_us - process.suspended_before_us + duration_us > _SUSPENDED_US_MAX:
                is_suspended = False
            kind = "suspended" if is_suspended else "stand_still"
            faults.happened[kind] += 1
            member.trace.add(self._loop.now_us, "fault {} at {} {} us", kind, member.member_id, duration_us)
            member.pause()

            def resume() -> None:
                if member.process is process and member.is_paused:
                    if is_suspended:
                        member.clock.suspended_us += duration_us
                    member.resume()

            def miss() -> None:
                # Its peers ask into the void, and give the connections up.
                if member.process is process and member.is_paused:
                    member.close_connections()

            self._loop.call_later(duration_us, resume)
            if duration_us > SILENCE_US:
                self._loop.call_later(SILENCE_US, miss)
