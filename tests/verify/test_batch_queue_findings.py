"""Units of inner batches, compared with the log."""

import shutil
from pathlib import Path

import pytest
from derived_store import derived_findings
from store_group import StoreGroup, message

from message.batch import BatchMessage, encode_batch
from store.inner_batch import inner_batch
from store.layout.batch_unit import BATCH_UNIT, BATCH_UNIT_SIZE, pack_batch_unit
from store.layout.consume_queue_unit import CQ_UNIT
from verify.findings import Kind
from verify.replica import open_replica

COUNTS = (3, 2, 4, 1, 5, 2)
FILE = "batchconsumequeue/B/0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    group = StoreGroup(tmp_path, mapper_file_size_batch_consume_queue=BATCH_UNIT_SIZE * 4)
    group.start()
    leader = group.lead()
    for count in COUNTS:
        body = encode_batch(BatchMessage(0, b"m", b"") for _ in range(count))
        leader.put(inner_batch(message("B", 0, body), count), message("T"))
    group.settle()
    leader.stop()
    return group.root()


def write(root: Path, number: int, unit: bytes) -> None:
    path = root / FILE / f"{number // 4 * 4 * BATCH_UNIT_SIZE:020d}"
    content = bytearray(path.read_bytes())
    at = number % 4 * BATCH_UNIT_SIZE
    content[at : at + BATCH_UNIT_SIZE] = unit
    path.write_bytes(content)


def read(root: Path, number: int) -> tuple[int, ...]:
    path = root / FILE / f"{number // 4 * 4 * BATCH_UNIT_SIZE:020d}"
    return BATCH_UNIT.unpack_from(path.read_bytes(), number % 4 * BATCH_UNIT_SIZE)


def found(root: Path) -> list[tuple[Kind, str | None, int | None, int | None]]:
    findings = derived_findings([open_replica(root)])
    return [(one.kind, one.file, one.first_offset, one.last_offset) for one in findings]


def test_a_sound_store_has_no_finding(root: Path) -> None:
    assert found(root) == []


def test_a_changed_unit_is_named_with_the_offsets_of_its_batch(root: Path) -> None:
    values = list(read(root, 2))
    values[1] += 1
    write(root, 2, BATCH_UNIT.pack(*values))
    assert found(root) == [(Kind.CONSUME_QUEUE_WRONG, FILE, 5, 8)]


def test_a_unit_that_is_not_there_is_missed(root: Path) -> None:
    write(root, 5, bytes(BATCH_UNIT_SIZE))
    assert found(root) == [(Kind.CONSUME_QUEUE_MISSING, FILE, 15, 16)]


def test_a_unit_that_no_batch_of_the_log_explains_is_found(root: Path) -> None:
    values = list(read(root, 5))
    values[4] = 17
    write(root, 6, BATCH_UNIT.pack(*values))
    assert found(root) == [(Kind.CONSUME_QUEUE_EXTRA, FILE, 17, 18)]


def test_single_messages_have_units_of_one_where_javas_broker_stored_them(root: Path) -> None:
    """As its recorded stores have them; a broker of ours takes none for such topics."""
    units = CQ_UNIT.iter_unpack(
        b"".join(path.read_bytes() for path in sorted((root / "consumequeue/T/0").iterdir()))
    )
    batch_units = [
        pack_batch_unit(phy_offset, size, tags_code, 1, offset, 1)
        for offset, (phy_offset, size, tags_code) in enumerate(units)
        if size
    ]
    shutil.rmtree(root / "consumequeue/T")
    (root / "batchconsumequeue/T/0").mkdir(parents=True)
    path = root / "batchconsumequeue/T/0" / ("0" * 20)
    path.write_bytes(b"".join(batch_units))
    assert found(root) == []
    path.write_bytes(b"".join(batch_units[:-1]))
    assert [(kind, first, last) for kind, _, first, last in found(root)] == [
        (Kind.CONSUME_QUEUE_MISSING, 0, 5)
    ]
