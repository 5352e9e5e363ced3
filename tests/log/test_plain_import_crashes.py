"""Taking over a store of RocketMQ's, with the power going at each step: its tables and queue ends are not lost."""

import logging
from copy import deepcopy
from random import Random

import pytest
from crash_disk import CrashDisk
from ledger_model import PowerLossError
from test_plain_log import HOST, facts, filled, open_log, without_ours

from dledger.entry import Index
from dledger.log.quorum_state import QuorumState
from store.java.plain_import import PENDING_NAME, PlainImport
from store.layout.consume_queue_unit import CQ_UNIT
from store.state.state_machine import StateMachine
from store.store_config import StoreConfig

CONFIG = StoreConfig(
    store_path_root_dir="store",
    ledger_directory="store/pydledger",
    store_host=HOST,
    mapped_file_size_consume_queue=200,
)
TOPICS = b'{"dataVersion":{"counter":3,"timestamp":5},"topicConfigTable":{"T":{"topicName":"T","readQueueNums":2}}}'
OFFSETS = b'{"offsetTable":{"T@g":{0:4}}}'


def write(disk: CrashDisk, path: str, content: bytes) -> None:
    directory = path.rpartition("/")[0]
    disk.make_directory(directory)
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwrite(content, 0)
    file.fdatasync()
    disk.sync_directory(directory)


def java_store(*, is_ours: bool) -> CrashDisk:
    """40 records, a queue with 13 units in the second file, a third file made ahead. `is_ours`: of a
    broker of ours whose own directory is lost.
    """
    disk = CrashDisk()
    filled(disk)
    without_ours(disk)
    for path in disk.paths():
        disk.open(path).fdatasync()
    for directory in sorted(disk.directories):
        disk.sync_directory(directory)
    for name, content in (("topics", TOPICS), ("consumerOffset", OFFSETS)):
        exported = content[:-1] + b',"pydledgerAppliedIndex":7}'
        write(disk, f"store/config/{name}.json", exported if is_ours else content)
    for directory in ("store/consumequeue", "store/consumequeue/Gone", "store/consumequeue/Gone/1"):
        disk.make_directory(directory)
    units = b"".join(CQ_UNIT.pack(number * 100, 100, 0) for number in range(3))
    for offset, content in ((200, units.ljust(200, b"\0")), (400, bytes(200))):
        write(disk, f"store/consumequeue/Gone/1/{offset:020d}", content)
    return disk


def take_over(disk: CrashDisk) -> tuple[object, ...]:
    """As a broker starts. Everything that it goes on with."""
    plain_import = PlainImport(disk, CONFIG)
    plain_import.prepare()
    log = open_log(disk)
    QuorumState.load(disk, CONFIG.ledger_directory).close()
    imported = plain_import.take_over(log)
    seen = facts(log)
    log.close()
    state = StateMachine(is_whole=True, imported_tables=imported.tables)
    topics, offsets = state.tables.topic_config_table, state.tables.consumer_offset_table
    assert list(topics.configs) == ["T"]
    assert offsets.offsets == {"T@g": {0: 4}}
    return imported.last_index, imported.queues, imported.config_crcs, seen


def test_a_crash_within_our_first_export_is_not_taken_for_a_run_of_rocketmq() -> None:
    disk = java_store(is_ours=False)
    wanted = take_over(disk)
    disk.rename("store/config/topics.json", "store/config/topics.json.bak")
    disk.unlink("store/config/consumerOffset.json")
    PlainImport(disk, CONFIG).prepare()
    assert not disk.exists(f"store/pydledger/pydledger/{PENDING_NAME}")
    assert take_over(disk) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_ours", [False, True])
def test_each_step_may_be_the_last(seed: int, is_ours: bool) -> None:
    logging.disable()
    try:
        before = java_store(is_ours=is_ours)
        wanted = take_over(deepcopy(before))
        assert wanted[:2] == (Index(39), [(b"Gone", 1, 13, 13)])
        steps = 0
        while True:
            disk = deepcopy(before)
            left = [steps]

            def fail(operation: str, path: str, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    raise PowerLossError

            disk.fail = fail
            try:
                take_over(disk)
            except PowerLossError:
                steps += 1
            else:
                break
            disk = disk.crash(Random(seed * 1000 + steps))
            assert take_over(disk) == wanted
            # Once it is taken over, RocketMQ's files are no longer needed.
            for path in disk.paths():
                if "/consumequeue/" in path or "/config/" in path:
                    disk.unlink(path)
            assert take_over(disk) == wanted
        assert steps > 20
    finally:
        logging.disable(logging.NOTSET)
