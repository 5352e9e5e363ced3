"""Starts that a crash cuts short: what recovery mends must be mended whole, or again by the next start."""

from random import Random

from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.sim_member import SimMember

# A recovery changes and syncs about so often.
_OPERATIONS_MAX = 20


class RecoveryCrashes:
    def __init__(self, options: Options, random: Random, faults: Faults) -> None:
        self._options = options
        self._random = random
        self._faults = faults

    def starts(self, member: SimMember) -> None:
        """Its process is about to recover; one that is through before its crash point falls soon after."""
        if self._faults.is_healed or member.disk.crash_after is not None:
            return
        if self._random.random() < self._options.recovery_crashes:
            member.disk.crash_after = int(_OPERATIONS_MAX ** self._random.random())
