"""Damage to what was durable: bits that flip, blocks that come back as zeros or as others, in data and index files; and
bits that flip in ConsumeQueues, of any member at any time.

Of the former only what the group has committed and the member's synced mark covers is hit, and never of so many members
that no sound copy is left. The bytes change on the medium and in the page cache alike, as if the page had been read
anew.
"""

from dledger.entry import INDEX_UNIT_SIZE
from simulator.faults.damage import Damage, as_it_was
from simulator.faults.damage_maker import DamageMaker
from simulator.faults.may_be_damaged import committed_mark
from simulator.world.disk_nodes import SECTOR_SIZE
from simulator.world.sim_member import SimMember

DAMAGE_KINDS = ("bit_flip", "zeroed_block", "stale_block", "index_damage", "unit_damage")
_PHY_OFFSET_SIZE = 8


class DamageFaults(DamageMaker):
    def start(self) -> None:
        self._faults.recur(self._random, self._options.damage_interval_ms, self._damage)

    def _damage(self) -> None:
        member = self._random.choice(self._members)
        kind = self._random.choice(DAMAGE_KINDS)
        if kind == "unit_damage":
            has_happened = self._hit_unit(member)
        else:
            has_happened = self._faults.may_damage(member) and self._hit(member, kind)
        if has_happened:
            self._count(kind, member)

    def _hit(self, member: SimMember, kind: str) -> bool:
        random, directory = self._random, member.config.directory
        mark = committed_mark(member, self._oracle)
        if mark is None:
            return False
        first_index = mark.before_begin_index + 1
        if kind == "index_damage":
            # The unit may be all that tells of a stale entry.
            if any(damage.is_lost_write for damage in member.damages if damage.is_of(member.disk)):
                return False
            size, low, high = (
                self._options.index_file_size,
                first_index * INDEX_UNIT_SIZE,
                (mark.index + 1) * INDEX_UNIT_SIZE,
            )
            name = "index"
        else:
            size, low, high, name = self._options.data_file_size, mark.begin_pos, mark.end_pos, "data"
        pos = random.randrange(low, high)
        path = f"{directory}/{name}/{pos - pos % size:020d}"
        content = member.disk.durable(path)
        if content is None or len(content) < size:
            return False
        offset = pos % size
        if kind in ("bit_flip", "index_damage"):
            data = bytes([content[offset] ^ 1 << random.randrange(8)])
        else:
            offset -= offset % SECTOR_SIZE
            end = min(offset + SECTOR_SIZE, size, high - (pos - pos % size))
            offset = max(offset, low - (pos - pos % size))
            other = random.randrange(0, size - SECTOR_SIZE, SECTOR_SIZE) if kind == "stale_block" else None
            data = bytes(end - offset) if other is None else content[other : other + end - offset]
        if data == content[offset : offset + len(data)] or not member.disk.damage(path, offset, data):
            return False
        # What lay here before may have been damage as well.
        sound = as_it_was(content, member.disk, path, member.damages)
        original = sound[offset : offset + len(data)]
        member.damages.append(Damage(member.disk, path, offset, original, self._loop.now_us))
        return True

    def _hit_unit(self, member: SimMember) -> bool:
        """Of a message that is there, for one that is gone is never looked at. Bits of a physical offset are only set:
        what a queue's first unit says is all that retention has to go by, and it may not say less than is so.
        """
        random, process = self._random, member.process
        if process is None:
            return False
        queues = [queue for queue in process.store.queues if queue.first_unit < queue.flushed_unit]
        if not queues:
            return False
        queue = random.choice(queues)
        number, at = random.randrange(queue.first_unit, queue.flushed_unit), random.randrange(queue.unit_size)
        bit = 1 << random.randrange(8)
        place = number * queue.unit_size + at
        offset = place % queue.files.mapped_file_size
        path = queue.files.path_of(place - offset)
        content = member.disk.durable(path)
        if content is None or len(content) <= offset:
            return False
        data = bytes([content[offset] | bit if at < _PHY_OFFSET_SIZE else content[offset] ^ bit])
        if data == content[offset : offset + 1] or not member.disk.damage(path, offset, data):
            return False
        sound = as_it_was(content, member.disk, path, member.unit_damages)
        original = sound[offset : offset + 1]
        member.unit_damages.append(Damage(member.disk, path, offset, original, self._loop.now_us))
        return True
