"""Members that are taken out of the group and put back, or replaced by new ones, while everything else goes wrong.

A member that is put back has kept its host, its disk and its process: it comes as a learner with a log of before, or
with none if its disk was wiped meanwhile. One that is replaced is gone for good, and another host with an id that the
group never had comes as a learner with nothing.
"""

from collections.abc import Callable
from random import Random

from dledger.core.membership import Membership
from dledger.core.output import AppendStatus
from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.process import Process
from simulator.world.sim_member import SimMember

_RETRY_US = 50_000


class MembershipFaults:
    """Invariant: once the faults are healed, whoever is out is put back."""

    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        options: Options,
        random: Random,
        newcomer_random: Random,
        faults: Faults,
        replace_host: Callable[[SimMember], SimMember],
    ) -> None:
        """`replace_host` puts another one, which does not run yet, in the place of a member among `members`."""
        self._loop = loop
        self._members = members
        self._newcomer_random = newcomer_random
        self._newcomers: list[SimMember] = []  # that have no vote yet
        self._replace_host = replace_host
        self._options = options
        self._random = random
        self._faults = faults

    def start(self) -> None:
        self._faults.recur(self._random, self._options.membership_interval_ms, self._change)

    def heal(self) -> None:
        """Not only when the next change would come, which in a calm life may be minutes."""
        if self._options.membership_interval_ms:
            self._put_back()

    def _change(self) -> None:
        self._count_seated()
        leaders = [member for member in self._members if _serves(member)]
        if leaders:
            leader = self._random.choice(leaders)
            process = leader.process
            assert process is not None, "it serves"
            leader.call(self._change_at, process)

    def _change_at(self, process: Process) -> None:
        random, value = self._random, process.replica.member.membership
        absent = [member for member in self._members if member.member_id not in value.members]
        if absent and random.random() < 0.6:
            self._add(process, self._maybe_replaced(random.choice(absent), process))
            return
        member_id = random.choice(sorted(value.members))
        if self._may_go(value.without(member_id)):
            refusal = process.replica.remove_member(member_id, _ignore, process.host.now_ms())
            self._count("member_removed" if refusal is None else "change_refused", process, member_id)

    def _may_go(self, after: Membership) -> bool:
        lost = {member.member_id for member in self._members if member.has_lost or member.is_damaged}
        lost |= self._faults.gone
        return (
            len(after.voters) >= self._options.voters_min
            and len(lost & set(after.voters)) <= (len(after.voters) - 1) // 2
        )

    def _maybe_replaced(self, absent: SimMember, process: Process) -> SimMember:
        """Only who is out by a committed entry may be gone: else the log may say later on that it has a vote. A leader
        that
        has just taken its own vote still leads, and is the one that is asked.
        """
        raft = process.replica.member
        is_out = 0 <= raft.membership_index <= raft.committed_index and absent is not process.host
        if not is_out or self._newcomer_random.random() >= self._options.newcomers:
            return absent
        newcomer = self._replace_host(absent)
        self._newcomers.append(newcomer)
        self._count("member_replaced", process, absent.member_id)
        # Before it is added or after: who is not known yet waits.
        self._loop.call_later(self._newcomer_random.randrange(_RETRY_US), self._faults.restart, newcomer)
        return newcomer

    def _count_seated(self) -> None:
        for newcomer in list(self._newcomers):
            process = newcomer.process
            if process is not None and newcomer.member_id in process.replica.member.membership.voters:
                self._newcomers.remove(newcomer)
                self._faults.happened["newcomer_votes"] += 1

    def _add(self, process: Process, host: SimMember) -> None:
        member_id = host.member_id
        address = str(host.config.peers[member_id])
        refusal = process.replica.add_member(member_id, address, _ignore, process.host.now_ms())
        self._count("member_added" if refusal is None else "change_refused", process, member_id)

    def _count(self, what: str, process: Process, member_id: str) -> None:
        self._faults.happened[what] += 1
        host = process.host
        host.trace.add(self._loop.now_us, "{} {} {}", host.member_id, what, member_id)

    def _put_back(self) -> None:
        """Until all are voters again."""
        self._count_seated()
        for leader in self._members:
            process = leader.process
            if process is not None and _serves(leader):
                value = process.replica.member.membership
                for member in self._members:
                    if member.member_id not in value.members:
                        leader.call(self._add, process, member)
                        break
        self._loop.call_later(_RETRY_US, self._put_back)


def _serves(member: SimMember) -> bool:
    return member.process is not None and member.process.store.serving and not member.is_paused


def _ignore(status: AppendStatus) -> None:
    """Who is in the group is seen in the log."""
