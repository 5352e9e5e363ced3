"""Members that lose their synced mark while they are down, or find it damaged beyond reading.

Such a member proves its whole log anew, and is doubted. With the mark goes what is said of damage below it: whoever has
some is spared, for the log would end there.
"""

from disk.slots import newest_payload
from dledger.log.synced_mark import MARK_FILE_NAME
from simulator.damage_maker import DamageMaker

SYNCED_MARK_FAULT_KINDS = ("synced_mark_lost", "synced_mark_damaged")


class SyncedMarkFaults(DamageMaker):
    def start(self) -> None:
        self._faults.recur(self._random, self._options.synced_mark_loss_interval_ms, self._one)

    def _one(self) -> None:
        faults, random = self._faults, self._random
        member, kind = random.choice(self._members), random.choice(SYNCED_MARK_FAULT_KINDS)
        path = f"{member.config.directory}/pydledger/{MARK_FILE_NAME}"
        slots = member.disk.durable(path)
        if slots is None or newest_payload(slots) is None:
            return
        if any(damage.is_of(member.disk) for damage in member.damages):
            return
        if not faults.may_damage(member) or not faults.are_sound_but(member):
            return
        if member.process is not None:
            faults.crash(member)
        member.has_lost = True
        faults.without_vote.append(member)
        if kind == "synced_mark_lost":
            member.disk.lose(path)
        else:
            member.disk.zero(path)
        self._count(kind, member)
