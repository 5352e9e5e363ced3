"""Members that lose their synced mark while they are down, or find it damaged beyond reading; or the begin mark.

Without the synced mark a member proves its whole log anew, and is doubted. With it goes what is said of damage below
it: whoever has some is spared, for the log would end there. Of the two files one is left. Where the log was to begin
anew, and what it had is still there, that one tells of the new begin, and nobody knows any more what lay in front of
the old one.
"""

import orjson

from disk.slots import newest_payload
from dledger.entry import ENTRY_HEADER_SIZE, ENTRY_MAGIC, chain_after, parse_header
from dledger.log.begin_mark import BEGIN_MARK_FILE_NAME
from dledger.log.synced_mark import MARK_FILE_NAME
from simulator.faults.damage_maker import DamageMaker
from simulator.world.sim_member import SimMember

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
        if kind != "begin_mark_lost":
            member.has_forgotten_begin = _begins_elsewhere(member, begin_mark)
        if kind == "synced_mark_damaged":
            member.disk.zero(synced_mark)
        else:
            member.disk.lose(begin_mark if kind == "begin_mark_lost" else synced_mark)
        self._count(kind, member)


def _is_readable(member: SimMember, path: str) -> bool:
    slots = member.disk.durable(path)
    return slots is not None and newest_payload(slots) is not None


def _begins_elsewhere(member: SimMember, begin_mark: str) -> bool:
    """Whether there are entries, and the one with which the log begins by its begin mark is not among them."""
    payload = newest_payload(member.disk.durable(begin_mark) or b"")
    assert payload is not None, "it is readable"
    begin = orjson.loads(payload)
    directory = f"{member.config.directory}/data"
    heads = {
        int(name): (member.disk.content(f"{directory}/{name}") or b"")[:ENTRY_HEADER_SIZE]
        for name in member.disk.list_directory(directory)
    }
    head = heads.get(begin["begin_pos"], b"").ljust(ENTRY_HEADER_SIZE, b"\0")
    header = parse_header(head)
    is_begun = (header.magic, header.index) == (ENTRY_MAGIC, begin["before_begin_index"] + 1) and (
        header.chain_crc == chain_after(head, begin["before_begin_chain"])
    )
    return any(map(any, heads.values())) and not is_begun
