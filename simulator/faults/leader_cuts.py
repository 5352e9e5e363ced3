"""Leaders that hear nobody any more, while their followers see them gone at once: these elect another one, and for as
long as its check of the quorum takes the old one does not know. What a silence alone never does, for by the time that
others elect after one, a leader that is cut off has stepped down.
"""

from random import Random

from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember
from simulator.world.sim_network import SimNetwork


class LeaderCuts:
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
        self._random = random
        self._faults = faults

    def start(self) -> None:
        self._faults.recur(self._random, self._options.leader_cut_interval_ms, self._cut_off_all)

    def _cut_off_all(self) -> None:
        for member in self._members:
            if member.process is not None and member.process.store.serving and not member.is_paused:
                self._cut_off(member)

    def _cut_off(self, member: SimMember) -> None:
        """Its connections are reset on the way: what the followers say of that does not reach it, what it says does."""
        network, member_id = self._network, member.member_id
        incoming = [
            path for (_, to), path in network.paths.items() if to == member_id and not path.is_blocked
        ]
        for path in incoming:
            path.is_blocked = True
        for pair in [pair for pair in network.up if member_id in pair]:
            network.close(*pair)

        def unblock() -> None:
            for path in incoming:
                path.is_blocked = False

        timeout_us = self._options.election_timeout_ms_min * 1_000
        self._loop.call_later(self._random.randint(timeout_us // 2, 2 * timeout_us), unblock)
        self._faults.happened["leader_cut"] += bool(incoming)
