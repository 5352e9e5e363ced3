from memory_log import MemoryLog

from dledger.core.durable_index import DurableIndex


def _log_and_durable(durable_index):
    log = MemoryLog([1] * 10)
    return log, DurableIndex(log, durable_index, 0)


def test_a_sync_raises_it_once():
    _, durable = _log_and_durable(4)
    assert durable.synced(9, 5)
    assert durable.value == 9
    assert not durable.synced(9, 6)


def test_a_cut_lowers_it_and_what_is_synced_behind_it_counts():
    log, durable = _log_and_durable(9)
    durable.cut(6)
    assert durable.value == 5
    log.cut(6)
    log.append([b"x"] * 10, 2)
    assert durable.synced(15, 5)
    assert durable.value == 15


def test_a_cut_of_what_is_not_durable_leaves_it():
    _, durable = _log_and_durable(4)
    durable.cut(6)
    assert durable.value == 4


def test_it_tells_how_long_work_waits_without_a_completed_sync():
    log, durable = _log_and_durable(9)
    assert durable.waiting_ms(10_000) == 0
    log.append([b"x"], 1)
    durable.appended(10_000)
    durable.appended(12_000)
    assert durable.waiting_ms(15_000) == 5000


def test_each_completed_sync_shows_that_the_disk_works():
    log, durable = _log_and_durable(9)
    log.append([b"x"] * 2, 1)
    durable.appended(0)
    durable.synced(10, 4000)  # and entry 11 waits
    assert durable.waiting_ms(9000) == 5000
    durable.synced(11, 9001)
    assert durable.waiting_ms(99_000) == 0


def test_a_tail_read_back_at_start_waits_from_the_start():
    _, durable = _log_and_durable(8)
    assert durable.waiting_ms(5000) == 5000
