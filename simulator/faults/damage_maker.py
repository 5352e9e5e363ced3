"""What has in common who damages disks of members, where no more than a minority may be hit of what is committed."""

from random import Random

from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.harness.oracle import Oracle
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember


class DamageMaker:
    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        options: Options,
        random: Random,
        oracle: Oracle,
        faults: Faults,
    ) -> None:
        self._loop = loop
        self._members = members
        self._options = options
        self._random = random
        self._oracle = oracle
        self._faults = faults

    def _count(self, kind: str, member: SimMember) -> None:
        """It has happened."""
        self._faults.happened[kind] += 1
        member.trace.add(self._loop.now_us, "fault {} at {}", kind, member.member_id)
