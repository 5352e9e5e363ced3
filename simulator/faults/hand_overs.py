"""Operators who move the leadership about while everything else goes wrong, and how often it went where it should."""

from random import Random

from dledger.core.messages import PeerId
from dledger.entry import Term
from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.process import Process
from simulator.world.sim_member import SimMember


class HandOvers:
    """Whoever asked for it is counted: an operator, a stop, or the conf that prefers a leader."""

    def __init__(self, members: list[SimMember], options: Options, random: Random, faults: Faults) -> None:
        self.begun = 0
        self.taken_over = 0
        self._members = members
        self._options = options
        self._random = random
        self._faults = faults
        self._targets: dict[Term, PeerId] = {}  # by the term that is to end

    def start(self) -> None:
        self._faults.recur(self._random, self._options.hand_over_interval_ms, self._ask)

    def _ask(self) -> None:
        random = self._random
        leaders = [
            member for member in self._members if member.process is not None and member.process.store.serving
        ]
        if leaders:
            leader = random.choice(leaders)
            targets = [member.member_id for member in self._members if member is not leader]
            assert leader.process is not None, "one that serves runs"
            leader.call(self._hand_over, leader, leader.process, random.choice([None, *targets]))

    @staticmethod
    def _hand_over(member: SimMember, process: Process, target: PeerId | None) -> None:
        if not process.is_stopping:
            process.store.transfer_leadership(target, member.now_ms())

    # -- what came of them -------------------------------------------------------------------------------------

    def begins(self, term: Term, target: PeerId) -> None:
        self.begun += 1
        self._targets[term] = target

    def new_leader(self, member_id: PeerId, term: Term) -> None:
        self.taken_over += self._targets.get(Term(term - 1)) == member_id
