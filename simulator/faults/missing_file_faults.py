"""Data files that are taken away from members while they are down, or of which only a part is left."""

from dledger.log.synced_mark import SyncedMark
from simulator.faults.damage import Damage, as_it_was
from simulator.faults.damage_maker import DamageMaker
from simulator.faults.may_be_damaged import committed_mark
from simulator.world.sim_member import SimMember

MISSING_FILE_KINDS = ("data_file_lost", "data_file_short")


class MissingFiles(DamageMaker):
    def start(self) -> None:
        self._faults.recur(self._random, self._options.file_loss_interval_ms, self._one)

    def _one(self) -> None:
        faults, random = self._faults, self._random
        member, kind = random.choice(self._members), random.choice(MISSING_FILE_KINDS)
        mark = committed_mark(member, self._oracle)
        if mark is None or not faults.may_damage(member):
            return
        # Where it is the only one the member does not start: somebody has emptied the directory.
        if sum(member.disk.durable(self._path(member, start)) is not None for start in self._files(mark)) < 2:
            return
        if member.process is not None:
            faults.crash(member)
        if self._take(member, kind, mark):
            self._count(kind, member)

    def _files(self, mark: SyncedMark) -> range:
        """Begins of those that hold something that the mark covers."""
        size = self._options.data_file_size
        return range(mark.begin_pos - mark.begin_pos % size, mark.end_pos, size)

    @staticmethod
    def _path(member: SimMember, start: int) -> str:
        return f"{member.config.directory}/data/{start:020d}"

    def _take(self, member: SimMember, kind: str, mark: SyncedMark) -> bool:
        """`mark` is the one on the medium: what it covers, one in the page cache covers as well, and more perhaps. That
        is damaged too where no power loss takes that one, so that it comes back as it was. Where it was not committed
        it may not, and what would be zeros from now on is not to be taken for right later: that file stays.
        """
        random, disk, size = self._random, member.disk, self._options.data_file_size
        start = random.choice(self._files(mark))
        path = self._path(member, start)
        content = disk.durable(path)
        cached = committed_mark(member, self._oracle, is_cached=True)
        if content is None or len(content) < size or cached is None:
            return False
        if start + size > mark.end_pos:
            member.has_lost = True  # what was acknowledged behind the mark
            member.has_lost_tail = True
        end_pos = max(mark.end_pos, cached.end_pos)
        low, high = max(mark.begin_pos - start, 0), min(size, end_pos - start)
        original = as_it_was(content, disk, path, member.damages)[low:high]
        if kind == "data_file_lost":
            disk.lose(path)
        else:
            disk.shorten(path, random.randrange(high))
        member.damages.append(Damage(disk, path, low, original, self._loop.now_us))
        return True
