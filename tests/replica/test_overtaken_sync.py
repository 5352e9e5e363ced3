"""A sync that was begun before a cut ends long after it, with other jobs in between."""

from test_replica_faults import SimGroup
from virtual_group import VirtualMember

from dledger.core.messages import Message, PeerId
from dledger.rpc.requests import RepairMessage


class PartedGroup(SimGroup):
    apart: PeerId | None = None

    def carry(
        self, sender: VirtualMember, to: PeerId, message: Message | RepairMessage, payload: bytes
    ) -> None:
        if self.apart not in (sender.id, to):
            super().carry(sender, to, message, payload)

    def part(self, member: VirtualMember) -> None:
        self.apart = member.id
        for other in self.followers(member):
            other.replica.peer_disconnected(member.id, self.now_ms)
            member.replica.peer_disconnected(other.id, self.now_ms)

    def heal(self, member: VirtualMember) -> None:
        self.apart = None
        self.meet_all(member)


def test_it_counts_up_to_the_cut_and_no_further() -> None:
    """A mark was written in between, by which the core knew of the log behind the cut."""
    group = PartedGroup()
    group.start()
    old = group.elect()
    group.run_until(group.converged)
    group.run_for(1500)
    log, core = old.replica.log, old.replica.member
    handler = core._handler
    old.job_delays_ms["mark"] = 4000
    group.append(old, [b"to be marked"])
    group.run_for(1200)
    old.job_delays_ms["sync"] = 5500
    group.part(old)
    group.append(old, [b"nobody else has this"] * 30)
    others = group.followers(old)
    group.run_until(lambda: any(member.replica.member.leader_ready for member in others))
    new = next(member for member in others if member.replica.member.leader_ready)
    group.heal(old)
    group.run_until(lambda: log.log_generation > 0 and not handler.is_cutting)
    for number in range(20):
        group.append(new, [b"%d" % number])
    end_ms = group.now_ms + 12_000

    def is_over() -> bool:
        assert core.durable_index <= log.durable_index
        return group.now_ms >= end_ms and core.durable_index == new.replica.log.ledger_end_index

    group.run_until(is_over, limit_ms=30_000)
