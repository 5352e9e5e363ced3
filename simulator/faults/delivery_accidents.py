"""Leaders that fall while delayed messages are on their way to their topics: the record that announces them is with
some members, and of the messages behind it some are with others and some with none.

Chance alone meets such a moment once in hundreds of runs.
"""

from collections.abc import Callable
from random import Random

from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember
from simulator.world.sim_network import SimNetwork


class DeliveryAccidents:
    def __init__(
        self, loop: EventLoop, network: SimNetwork, options: Options, random: Random, faults: Faults
    ) -> None:
        self._loop = loop
        self._network = network
        self._options = options
        self._random = random
        self._faults = faults

    def delivers(self, member: SimMember) -> None:
        """It has just appended a delivery, and sent what it could."""
        random, faults = self._random, self._faults
        if not faults.is_healed and random.random() < self._options.delivery_falls:
            maker = random.choice((faults.crash, faults.power_loss, faults.isolate_leader))
            # Not in the middle of its own step.
            self._loop.call_later(0, self._let_fall, member, maker)

    def _let_fall(self, member: SimMember, maker: Callable[[SimMember], bool]) -> None:
        if not self._faults.is_healed and maker(member):
            self._network.cut_short(member.member_id, self._random)
            self._faults.happened["delivery_fell"] += 1
            member.trace.add(
                self._loop.now_us, "{} delivers and falls by {}", member.member_id, maker.__name__
            )
