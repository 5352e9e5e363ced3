"""Timer messages of the recorded stores: what waits in RocketMQ's wheel waits here, and is handed back as it was."""

from pathlib import Path

import pytest
from golden_store import DLEDGER_STORE, NODES, unpack_store
from java_timer_files import read_timer_files
from one_broker import OneBroker

from message.names import TIMER_TOPIC

CONF = "mapedFileSizeCommitLog=1048576\nmapedFileSizeConsumeQueue=10000\nmappedFileSizeTimerLog=52000\n"
# Shortly after the stores were written, a day before the timers that wait are due.
NOW_MS = 1_795_170_000_000


@pytest.mark.slow
@pytest.mark.parametrize("name", ["single-5.5.0-clean", "single-5.5.0-killed", "single-5.5.0-torn"])
def test_what_waits_in_the_wheel_of_a_plain_broker_is_handed_back_and_comes_once(
    tmp_path: Path, name: str
) -> None:
    check(unpack_store(name, tmp_path, with_wheel=True), is_plain=True, waiting_count=2)


@pytest.mark.slow
def test_what_waits_in_the_wheel_of_a_dledger_member_is_handed_back_and_comes_once(tmp_path: Path) -> None:
    root = unpack_store(DLEDGER_STORE, tmp_path, with_wheel=True)
    first, *others = [read_timer_files(root / node) for node in NODES]
    assert [files.waiting for files in others] == [first.waiting] * 2
    check(root / "n0", is_plain=False, waiting_count=6)


def check(root: Path, *, is_plain: bool, waiting_count: int) -> None:
    left = read_timer_files(root)
    assert len(left.waiting) == waiting_count
    broker = OneBroker(root, CONF, is_plain=is_plain, now_ms=NOW_MS)
    broker.run_until(lambda: broker.store.reads.max_offset(TIMER_TOPIC, 0) == left.queue_offset)
    delivered = broker.store.reads.max_offset("StoreTimer", 0)
    broker.run_for(2_000)
    broker.close(clean=True)
    ours = read_timer_files(root)
    assert (ours.waiting, ours.counts, ours.queue_offset) == (left.waiting, left.counts, left.queue_offset)
    broker = OneBroker(root, CONF, is_plain=is_plain, now_ms=left.waiting[-1].slot_ms + 2_000)
    broker.run_until(
        lambda: broker.store.reads.max_offset("StoreTimer", 0) == delivered + waiting_count, 3_000
    )
    broker.close(clean=True)
    assert read_timer_files(root).waiting == []
