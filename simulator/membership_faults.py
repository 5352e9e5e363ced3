"""Members that are taken out of the group and put back while everything else goes wrong.

A member that is out keeps its host, its disk and its process: it comes back as a learner with a log of before, or with
none if its disk was wiped meanwhile.
"""

from collections.abc import Mapping
from random import Random

from dledger.core.membership import Membership
from dledger.core.output import AppendStatus
from simulator.event_loop import EventLoop
from simulator.faults import Faults
from simulator.member import Process, SimMember
from simulator.options import Options

_VOTERS_MIN = 2
_RETRY_US = 50_000


class MembershipFaults:
    """Invariant: once the faults are healed, whoever is out is put back."""

    def __init__(
        self, loop: EventLoop, members: list[SimMember], options: Options, random: Random, faults: Faults
    ) -> None:
        self._loop = loop
        self._members: Mapping[str, SimMember] = {member.member_id: member for member in members}
        self._options = options
        self._random = random
        self._faults = faults

    def start(self) -> None:
        if self._options.membership_interval_ms:
            self._next()

    def _next(self) -> None:
        interval_us = self._options.membership_interval_ms * 1_000
        self._loop.call_later(int(self._random.expovariate(1 / interval_us)) + 1, self._change)

    def _change(self) -> None:
        if self._faults.is_healed:
            self._put_back()
            return
        leaders = [member for member in self._members.values() if _serves(member)]
        if leaders:
            leader = self._random.choice(leaders)
            process = leader.process
            assert process is not None, "it serves"
            leader.call(self._change_at, process)
        self._next()

    def _change_at(self, process: Process) -> None:
        random, value = self._random, process.replica.member.membership
        absent = [member_id for member_id in self._members if member_id not in value.members]
        if absent and random.random() < 0.6:
            self._add(process, random.choice(absent))
            return
        member_id = random.choice(sorted(value.members))
        if self._may_go(value.without(member_id)):
            refusal = process.replica.remove_member(member_id, _ignore, process.host.now_ms())
            self._count("member_removed" if refusal is None else "change_refused", process, member_id)

    def _may_go(self, after: Membership) -> bool:
        lost = sum(self._members[voter].has_lost for voter in after.voters)
        return len(after.voters) >= _VOTERS_MIN and lost <= (len(after.voters) - 1) // 2

    def _add(self, process: Process, member_id: str) -> None:
        host = self._members[member_id]
        address = str(host.config.peers[member_id])
        refusal = process.replica.add_member(member_id, address, _ignore, process.host.now_ms())
        self._count("member_added" if refusal is None else "change_refused", process, member_id)

    def _count(self, what: str, process: Process, member_id: str) -> None:
        self._faults.happened[what] += 1
        host = process.host
        host.trace.add(self._loop.now_us, "{} {} {}", host.member_id, what, member_id)

    def _put_back(self) -> None:
        """Until all are voters again."""
        for leader in self._members.values():
            process = leader.process
            if process is not None and _serves(leader):
                value = process.replica.member.membership
                for member_id in self._members:
                    if member_id not in value.members:
                        leader.call(self._add, process, member_id)
                        break
        self._loop.call_later(_RETRY_US, self._put_back)


def _serves(member: SimMember) -> bool:
    return member.process is not None and member.process.store.serving and not member.is_paused


def _ignore(status: AppendStatus) -> None:
    """Who is in the group is seen in the log."""
