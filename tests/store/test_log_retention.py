"""When data files go: by age, by hour, by how full the disk is; of a log and a disk in memory."""

from dataclasses import dataclass

import pytest
from store_group import HOST, START_MS

from disk.mapped_file import DescriptorCache
from dledger.entry import ENTRY_HEADER_SIZE, Index
from message.encoder import encode_record
from store.java.old_commit_log import OldCommitLog
from store.retention import FORCE_RATIO, MANUAL_CHECKS, LogRetention, utc_hour
from store.store_config import StoreConfig

HOUR_MS = 3_600_000
NOON_MS = START_MS - START_MS % (24 * HOUR_MS) + 12 * HOUR_MS


@dataclass
class Files:
    """Disk, replica and ledger of data files with ten entries each, written an hour after each other."""

    used: int = 10  # percent
    count: int = 5
    deleted: int = 0
    ledger_begin_pos: int = 0
    refuses: bool = False
    waiting_pos: int | None = None
    asked: int = 0  # how often for a file to go
    looked_at: str = ""

    @property
    def log(self) -> "Files":
        return self

    def free_space(self, path: str) -> tuple[int, int]:
        self.looked_at = path
        return 100 - self.used, 100

    @property
    def head_size(self) -> int:
        return ENTRY_HEADER_SIZE

    @property
    def first_file_last_index(self) -> Index | None:
        return Index(10 * self.deleted + 9) if self.deleted + 1 < self.count else None

    def end_pos_at(self, index: int) -> int:
        return self.pos_at(index + 1)

    def pos_at(self, index: int) -> int:
        return index * 1000

    def read(self, pos: int, size: int) -> bytes:
        hour = (pos - ENTRY_HEADER_SIZE) // 10_000
        stored_ms = NOON_MS + hour * HOUR_MS
        return encode_record(
            *(b"T", 0, 0, 0, 0, 0, 0, HOST, stored_ms, HOST, 0, 0, b"", b"")
        )[:size]  # fmt: skip

    def delete_first_file(self, now_ms: int) -> bool:
        self.asked += 1
        if not self.refuses:
            self.deleted += 1
        return not self.refuses


def retention(files: Files, **settings: object) -> LogRetention:
    config = StoreConfig(store_path_root_dir="s", ledger_directory="s/d", store_host=HOST, **settings)  # type: ignore[arg-type]
    none_before = OldCommitLog(config, DescriptorCache(files), 0)  # type: ignore[arg-type]
    return LogRetention(config, files, files, none_before, lambda: files.waiting_pos, utc_hour)  # type: ignore[arg-type]


def run(log_retention: LogRetention, now_ms: int, needed_from: int = 1000, ticks: int = 10) -> None:
    for tick in range(ticks):
        log_retention.tick(Index(needed_from), now_ms + tick)


class TestLogRetention:
    @pytest.mark.parametrize("elsewhere", [None, "/disk2/commitlog"])
    def test_the_disk_that_the_log_lies_on_is_looked_at(self, elsewhere: str | None) -> None:
        files = Files(count=3)
        run(retention(files, commit_log_directory=elsewhere), NOON_MS)
        assert files.looked_at == (elsewhere or "s/d")

    def test_what_has_expired_goes_at_its_hour_oldest_first(self) -> None:
        files = Files()
        run(retention(files), NOON_MS + 73 * HOUR_MS - HOUR_MS // 2)
        assert files.deleted == 0, "it is past noon"
        four = NOON_MS + 16 * HOUR_MS + 48 * HOUR_MS
        run(retention(files), four)
        assert files.deleted == 0, "the oldest is 64 hours old"
        run(retention(files), four + 24 * HOUR_MS)
        assert files.deleted == 4, "all but the one in which the log ends"

    @pytest.mark.parametrize(("hours", "deleted"), [(72, 1), (73, 2), (71, 0)])
    def test_a_file_is_as_old_as_its_last_message(self, hours: int, deleted: int) -> None:
        files = Files()
        run(retention(files, delete_when=frozenset(range(24))), NOON_MS + hours * HOUR_MS)
        assert files.deleted == deleted

    def test_how_long_files_are_kept_can_be_changed_meanwhile(self) -> None:
        files = Files()
        log_retention = retention(files, file_reserved_time_ms=100 * HOUR_MS, delete_when=frozenset({3}))
        run(log_retention, NOON_MS + 74 * HOUR_MS)
        assert files.deleted == 0
        log_retention.configure(72 * HOUR_MS, frozenset(range(24)), 75)
        run(log_retention, NOON_MS + 74 * HOUR_MS)
        assert files.deleted == 3, "these are 72 hours old"

    def test_nothing_goes_that_is_still_needed(self) -> None:
        files = Files()
        run(retention(files, delete_when=frozenset(range(24))), NOON_MS + 1000 * HOUR_MS, needed_from=29)
        assert files.deleted == 2

    @pytest.mark.parametrize("used", [10, 89])
    def test_a_delayed_message_stays_until_it_is_delivered(self, used: int) -> None:
        files = Files(used=used, waiting_pos=29_999)
        log_retention = retention(files, delete_when=frozenset(range(24)))
        run(log_retention, NOON_MS + 1000 * HOUR_MS)
        assert files.deleted == 2
        assert log_retention.kept_end == (30_000 if used == 89 else None)
        files.waiting_pos = None
        run(log_retention, NOON_MS + 1001 * HOUR_MS)
        assert (files.deleted, log_retention.kept_end) == (4, None)

    @pytest.mark.parametrize(("used", "deleted"), [(75, 0), (76, 4)])
    def test_above_the_ratio_what_has_expired_goes_at_any_hour(self, used: int, deleted: int) -> None:
        files = Files(used=used)
        run(retention(files), NOON_MS + 24 * 5 * HOUR_MS)
        assert files.deleted == deleted

    def test_a_disk_that_fills_up_takes_what_has_not_expired(self) -> None:
        files = Files(used=FORCE_RATIO + 1)
        log_retention = retention(files)
        run(log_retention, NOON_MS, needed_from=25)
        assert files.deleted == 2
        assert log_retention.disk_full is None

    def test_no_more_goes_by_force_than_has_to(self) -> None:
        class Shrinking(Files):
            def delete_first_file(self, now_ms: int) -> bool:
                self.used -= 2
                return super().delete_first_file(now_ms)

        files = Shrinking(used=FORCE_RATIO + 3)
        run(retention(files), NOON_MS)
        assert files.deleted == 2

    def test_a_disk_that_is_nearly_full_refuses_sends_until_it_is_not(self) -> None:
        files = Files(used=91)
        log_retention = retention(files)
        run(log_retention, NOON_MS, needed_from=0)
        assert log_retention.disk_full == "the disk is 91.0 % full, the limit is 90 %"
        files.used = 60
        run(log_retention, NOON_MS + 9_000)
        assert log_retention.disk_full is not None, "looked at every 10 s"
        run(log_retention, NOON_MS + 10_000)
        assert log_retention.disk_full is None

    def test_by_hand_what_has_expired_goes_at_once_and_for_some_checks_more(self) -> None:
        files = Files()
        log_retention = retention(files)
        now_ms = NOON_MS + 72 * HOUR_MS + 2 * HOUR_MS
        run(log_retention, now_ms)
        assert files.deleted == 0
        log_retention.delete_expired()
        run(log_retention, now_ms + 100)
        assert files.deleted == 3, "these are 72 hours old"
        run(log_retention, now_ms + HOUR_MS)
        assert files.deleted == 4
        files.count += 1
        for check in range(MANUAL_CHECKS):
            run(log_retention, now_ms + 2 * HOUR_MS + check * 10_000, needed_from=0)
        run(log_retention, now_ms + 3 * HOUR_MS)
        assert files.deleted == 4

    def test_a_deletion_that_cannot_begin_yet_is_tried_again_and_not_at_each_tick(self) -> None:
        files = Files(refuses=True)
        log_retention = retention(files, delete_when=frozenset(range(24)))
        now_ms = NOON_MS + 72 * HOUR_MS
        run(log_retention, now_ms)
        assert files.asked == 1
        files.refuses = False
        run(log_retention, now_ms + 99, ticks=1)
        assert files.deleted == 0
        run(log_retention, now_ms + 100, ticks=1)
        assert files.deleted == 1
