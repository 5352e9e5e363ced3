"""Members that lose their synced mark while they are down, or find it damaged beyond reading; or the begin mark.

Without the synced mark a member proves its whole log anew, and is doubted. With it goes what is said of damage below
it: whoever has some is spared, for the log would end there. Of the two files one is left.
"""

from disk.slots import newest_payload
from dledger.log.begin_mark import BEGIN_MARK_FILE_NAME
from dledger.log.synced_mark import MARK_FILE_NAME
from simulator.damage_maker import DamageMaker
from simulator.member import SimMember

SYNCED_MARK_FAULT_KINDS = ("synced_mark_lost", "synced_mark_damaged", "begin_mark_lost")


class SyncedMarkFaults(DamageMaker):
    def start(self) -> None:
        self._faults.recur(self._random, self._options.synced_mark_loss_interval_ms, self._one)

    def _one(self) -> None:
        faults, random = self._faults, self._random
        member, kind = random.choice(self._members), random.choice(SYNCED_MARK_FAULT_KINDS)
        paths = [
            f"{member.config.directory}/pydledger/{name}" for name in (MARK_FILE_NAME, BEGIN_MARK_FILE_NAME)
        ]
        if not all(_is_readable(member, path) for path in paths):
            return
        if any(damage.is_of(member.disk) for damage in member.damages):
            return
        if not faults.may_damage(member) or not faults.are_sound_but(member):
            return
        if member.process is not None:
            faults.crash(member)
        member.has_lost = True
        faults.without_vote.append(member)
        synced_mark, begin_mark = paths
        if kind == "synced_mark_damaged":
            member.disk.zero(synced_mark)
        else:
            member.disk.lose(begin_mark if kind == "begin_mark_lost" else synced_mark)
        self._count(kind, member)


def _is_readable(member: SimMember, path: str) -> bool:
    slots = member.disk.durable(path)
    return slots is not None and newest_payload(slots) is not None
