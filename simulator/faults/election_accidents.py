"""Faults that wait for the moment in which they hurt: a leader that has just won, a vote that has just been given.

Chance alone meets such moments once in thousands of runs.
"""

from collections.abc import Callable
from random import Random

from dledger.core.messages import PeerId
from dledger.core.output import Role
from dledger.entry import Term
from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember
from simulator.world.sim_network import SimNetwork

_REBOOT_US = (100, 50_000)
# Those that are left may be too few to elect: one of them is doubted, say. Then nobody else would ever be cut off.
_CUT_OFF_US_MAX = 10_000_000


class ElectionAccidents:
    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        network: SimNetwork,
        options: Options,
        random: Random,
        faults: Faults,
        own_random: Random,
        begin_random: Random,
    ) -> None:
        self._loop = loop
        self._members = members
        self._network = network
        self._options = options
        self._random = random
        self._faults = faults
        # For what came later than the rest, so that a seed's other accidents stay what they were.
        self._own_random = own_random
        self._begin_random = begin_random
        self._cut_off_count = 0

    def new_leader(self, member: SimMember, term: Term) -> None:
        """Leaders that fall one after the other leave logs that differ: the case of figure 8 in the Raft paper."""
        random, options, faults = self._random, self._options, self._faults
        if options.repeats_answers and not faults.is_healed:
            faults.happened["answers_repeated"] += self._network.repeat_acknowledgements(
                member.member_id, term, self._own_random
            )
        if random.random() < options.leader_falls:
            makers = [
                faults.crash,
                faults.crash_point,
                faults.power_loss,
                faults.isolate_leader,
                faults.pause,
            ]
            maker = self._isolate if options.rolling_isolation else random.choice(makers)
            # As likely within the first ten µs as within the last tenth of the time.
            delay_us = int(options.leader_falls_us_max ** random.random())
            self._loop.call_later(delay_us, self._let_fall, member, maker)

    def _let_fall(self, member: SimMember, maker: Callable[[SimMember], bool]) -> None:
        if not self._faults.is_healed and maker(member):
            self._faults.happened["leader_fell"] += 1
            member.trace.add(self._loop.now_us, "new leader {} falls by {}", member.member_id, maker.__name__)

    def _isolate(self, member: SimMember) -> bool:
        """Cut off until another is or for 10 s, alone or with others that make no majority: what it writes is on their
        disks alone, they acknowledge it, and they come back for the next election.
        """
        for path in self._network.paths.values():
            path.is_blocked = False
        dice, others = self._own_random, [other.member_id for other in self._members if other is not member]
        company_max = (len(self._members) - 1) // 2 - 1
        inside = {member.member_id, *dice.sample(others, dice.randint(0, company_max))}
        pairs = [(one, other) for one, other in self._network.paths if (one in inside) != (other in inside)]
        for pair in pairs:
            self._network.close(*pair)
        for pair in pairs:
            self._network.paths[pair].is_blocked = True
        self._cut_off_count += 1
        self._loop.call_later(_CUT_OFF_US_MAX, self._let_back, pairs, self._cut_off_count)
        return True

    def _let_back(self, pairs: list[tuple[PeerId, PeerId]], number: int) -> None:
        if number == self._cut_off_count:
            for pair in pairs:
                self._network.paths[pair].is_blocked = False

    def begin_moved(self, member: SimMember) -> None:
        """The power goes while old files do, or while a log begins anew."""
        random = self._begin_random
        if not self._faults.is_healed and random.random() < self._options.begin_accidents:
            delay_us = random.randrange(3 * self._options.sync_latency_us_max)
            self._loop.call_later(delay_us, self._begin_falls, member)

    def _begin_falls(self, member: SimMember) -> None:
        if not self._faults.is_healed and self._faults.power_loss(member):
            self._faults.happened["begin_fell"] += 1

    def new_vote(self, voter: SimMember, term: Term, voted_for: str) -> None:
        """A voter that is gone as soon as its answer has left, and back before a rival gives up. The one voted for can
        be heard by nobody, so that neither of them learns who has won.
        """
        random = self._random
        if self._faults.is_healed or not self._has_rival(term, voted_for):
            return
        if random.random() < self._options.voter_falls:
            self._faults.block([pair for pair in self._network.paths if pair[0] == voted_for], notice=0)
            self._loop.call_later(
                random.randrange(2 * self._options.sync_latency_us_max), self._voter_falls, voter
            )

    def _has_rival(self, term: Term, voted_for: str) -> bool:
        rivals = [
            member
            for member in self._members
            if member.process is not None
            and member.member_id != voted_for
            and (raft := member.process.replica.member).role is Role.CANDIDATE
            and (raft.curr_term, raft.curr_vote_for) == (term, member.member_id)
        ]
        return bool(rivals)

    def _voter_falls(self, voter: SimMember) -> None:
        faults = self._faults
        if faults.is_healed or voter.process is None:
            return
        if faults.may_lose(voter):
            faults.lose_power(voter)  # no closed connection tells the candidates
        else:
            voter.end_process()
        faults.happened["voter_fell"] += 1
        self._loop.call_later(self._random.randint(*_REBOOT_US), faults.restart, voter)
