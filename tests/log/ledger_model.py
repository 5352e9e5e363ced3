"""A ledger on a crashing disk beside what it has promised, for histories of any kind."""

from collections.abc import Callable
from contextlib import suppress
from random import Random

from crash_disk import CrashDisk
from log_steps import config

from dledger.entry import EntryKind, Index, Term
from dledger.log.jobs import CutJob, MarkJob, MoveBeginJob, PrepareFileJob, SyncJob
from dledger.log.log_store import LogStore


class PowerLossError(Exception):
    """Raised out of a disk operation; nothing of the process goes on after it."""


class LedgerModel:
    """Each method is a step of a history. Jobs run when a step says so, in any order, as threads would run them."""

    data_directory = "store/dledger-n0/data"

    def __init__(self) -> None:
        self.disk = CrashDisk()
        self.log = self.open()
        self.entries: list[tuple[int, bytes]] = []  # (term, body)
        self.durable = 0  # entries that must survive anything
        self.now_ms = 0
        self.number = 0
        self.doubts = 0  # power losses after which there was doubt
        self._doubt_on_disk = False
        self._sync: SyncJob | None = None
        self._mark: MarkJob | None = None
        self._prepare: PrepareFileJob | None = None
        self._cut: CutJob | None = None
        self._move: MoveBeginJob | None = None
        self.begin = 0  # entries that may be gone at most
        self.kept_begin = 0  # entries that are gone for good

    def open(self) -> LogStore:
        return LogStore.open(self.disk, config())

    def append(self, sizes: list[int], new_term: bool) -> None:
        if self._cut is not None:
            return
        term = (self.entries[-1][0] if self.entries else 0) + new_term
        bodies = []
        for size in sizes:
            self.number += 1
            bodies.append((b"%d." % self.number * size)[:size])
        self.log.append(bodies, self.log.reserve(sizes), Term(term), EntryKind.MESSAGE)
        self.entries += [(term, body) for body in bodies]

    def begin_sync(self) -> None:
        if self._sync is None:
            self._sync = self.log.sync_job()

    def end_sync(self) -> None:
        job, self._sync = self._sync, None
        if job is not None:
            job.run()
            self.durable = self.log.sync_done(job) + 1

    def begin_mark(self) -> None:
        self.now_ms += 2000
        if self._mark is None:
            self._mark = self.log.mark_job(self.now_ms)

    def end_mark(self) -> None:
        job, self._mark = self._mark, None
        if job is not None:
            job.run()
            self.log.mark_done(job)
            self._doubt_on_disk = self._doubt_on_disk and job.cancelled

    def begin_prepare(self) -> None:
        if self._prepare is None:
            self._prepare = self.log.prepare_job()

    def end_prepare(self) -> None:
        job, self._prepare = self._prepare, None
        if job is not None:
            job.run()
            self.log.prepare_done(job)

    def begin_cut(self, share: float) -> None:
        if self.entries and self._cut is None:
            keep = max(int(len(self.entries) * share), self.log.ledger_begin_index)
            if keep > self.log.ledger_end_index:
                return
            self._cut = self.log.begin_cut(Index(keep))
            del self.entries[keep:]
            self.durable = min(self.durable, keep)

    def end_cut(self) -> None:
        job, self._cut = self._cut, None
        if job is not None:
            job.run()
            self.log.cut_done(job)
            self._doubt_on_disk = False

    def begin_move(self) -> None:
        if self._move is None:
            self._move = self.log.delete_first_file_job()
            self.begin = self.log.ledger_begin_index

    def end_move(self) -> None:
        job, self._move = self._move, None
        if job is not None:
            job.run()
            self.log.move_begin_done(job)
            if job.is_done:
                self.kept_begin = job.mark.before_begin_index + 1

    def sync(self) -> None:
        self.begin_sync()
        self.end_sync()

    def restart(self, clean: bool) -> None:
        for end in (self.end_sync, self.end_mark, self.end_prepare, self.end_move, self.end_cut):
            end()
        self.log.close(clean=clean)
        self._doubt_on_disk = self._doubt_on_disk and not clean
        self.log = self.open()
        assert not self.log.doubted or self._doubt_on_disk
        self.log.doubt_saved()
        assert self.log.ledger_end_index == len(self.entries) - 1, "the end of a process loses nothing"
        self.durable = len(self.entries)
        self.check()

    def restart_after_failed_write_back(self) -> None:
        """A sync has failed, the process has stopped as it must, and what it wrote reads back all the same."""
        if self._cut is not None:
            self.end_cut()
        self.end_move()
        self.disk.fail_write_back()
        self._sync = self._mark = self._prepare = None
        self.log = self.open()
        assert self.log.ledger_end_index == len(self.entries) - 1
        self.durable = len(self.entries)
        self.check()
        self.log.doubt_saved()

    def power_loss(self, seed: int) -> None:
        """The power may go again while the ledger recovers."""
        random = Random(seed)
        cut_length = len(self.entries) if self._cut is not None else None
        self.disk = self.disk.crash(random)
        while random.random() < 0.3:
            self._fail_after(random.randrange(12))
            with suppress(PowerLossError):
                self.open()
            self.disk = self.disk.crash(random)
        self._sync = self._mark = self._prepare = self._cut = self._move = None
        self.log = self.open()
        kept = self.log.ledger_end_index + 1
        assert kept >= self.durable
        if cut_length is None:
            assert kept <= len(self.entries)
        elif kept > cut_length:
            # The cut had not begun on the disk: what was to go is there again, and as good as before.
            self._take_back()
        del self.entries[kept:]
        self.durable = kept
        self.check()
        self.doubts += self.log.doubted
        self._doubt_on_disk = self.log.doubted
        self.log.doubt_saved()

    def power_loss_during(self, step: int, after: int, seed: int) -> None:
        """The power goes at the n-th change that a running job makes."""
        ends = (self.end_sync, self.end_mark, self.end_prepare, self.end_cut, self.end_move)
        end: Callable[[], None] = ends[step]
        cut = self._cut
        self._fail_after(after)
        try:
            end()
        except PowerLossError:
            self._cut = cut
        self.power_loss(seed)

    def check(self) -> None:
        begin = self.log.ledger_begin_index
        assert self.kept_begin <= begin <= self.begin
        self.kept_begin = self.begin = begin
        assert self._read() == self.entries[begin:]
        first_file = min(
            (path for path in self.disk.paths() if path.startswith(self.data_directory)), default=""
        )
        assert not first_file or int(first_file[-20:]) == self.log.ledger_begin_pos
        assert self.log.durable_index == self.durable - 1

    def _take_back(self) -> None:
        self.entries += self._read()[len(self.entries) - self.log.ledger_begin_index :]

    def _read(self) -> list[tuple[int, bytes]]:
        seen = []
        for batch in self.log.batches_from(self.log.ledger_begin_index, self.log.ledger_end_index, 600):
            for index, at in enumerate(batch.offsets, batch.first_index):
                term = self.log.term_at(Index(index))
                assert term is not None
                seen.append((int(term), batch.buffer[at + self.log.head_size : batch.end_offset_of(index)]))
        return seen

    def _fail_after(self, count: int) -> None:
        left = count

        def fail(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise PowerLossError(f"{operation} {path}")

        self.disk.fail = fail


def play(seed: int, kind: type[LedgerModel] = LedgerModel) -> LedgerModel:
    """A history of up to 60 steps, ending with a power loss."""
    random = Random(seed)
    model = kind()
    plain = (
        *(model.begin_sync, model.end_sync) * 2,
        *(model.begin_mark, model.end_mark, model.begin_prepare, model.end_prepare, model.sync),
        *(model.end_cut, model.begin_move, model.end_move) * 2,
    )
    for _ in range(random.randint(5, 60)):
        chance = random.random()
        if chance < 0.4:
            usual = (random.randint(0, 600), random.randint(0, 600), random.choice((0, 10, 900, 3500, 4040)))
            model.append([random.choice(usual) for _ in range(random.randint(1, 9))], random.random() < 0.2)
        elif chance < 0.75:
            random.choice(plain)()
        elif chance < 0.83:
            model.begin_cut(random.random())
        elif chance < 0.85:
            model.restart(clean=random.random() < 0.3)
        elif chance < 0.87:
            model.restart_after_failed_write_back()
        elif chance < 0.93:
            model.power_loss(random.randrange(1 << 30))
        else:
            model.power_loss_during(random.randrange(5), random.randrange(13), random.randrange(1 << 30))
    model.power_loss(1)
    return model
