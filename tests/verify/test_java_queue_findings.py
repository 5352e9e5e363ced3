"""ConsumeQueues that RocketMQ wrote, against their log: what its broker may leave wrong or missing is no finding."""

import shutil
from pathlib import Path

import pytest
from derived_store import cut_out, derived_findings

from message.decoder import decode_message
from store.layout.consume_queue_unit import CQ_UNIT_SIZE
from verify.findings import Kind
from verify.log.entry_scan import Run, scan
from verify.queues.units_bound import units_bound
from verify.replica import open_replica
from verify.work import plan

ZERO = bytes(CQ_UNIT_SIZE)
JAVA_STORES = ("single-5.5.0-clean", "single-4.9.5-clean", "single-5.5.0-killed", "single-5.5.0-torn")


@pytest.mark.parametrize("name", JAVA_STORES)
@pytest.mark.parametrize("unit_count", [None, 7])
def test_java_s_stores_have_no_finding(tmp_path: Path, name: str, unit_count: int | None) -> None:
    """Those that were killed too: Java's files were in the page cache. The unit and the keys of the record that was
    torn by hand point behind the log's end; Java's recovery cuts them off."""
    assert derived_findings([open_replica(cut_out(name, tmp_path))], unit_count=unit_count) == []


@pytest.mark.slow
def test_java_s_group_has_no_finding(tmp_path: Path) -> None:
    roots = [cut_out("dledger-5.5.0-3nodes", tmp_path, root=node) for node in ("n0", "n1", "n2")]
    assert derived_findings([open_replica(root) for root in roots], unit_count=5) == []


def test_what_java_will_dispatch_again_may_be_missing(tmp_path: Path) -> None:
    """A killed store's checkpoint tells which units were on disk. Later ones come back; a wrong one stays."""
    root = cut_out("single-5.5.0-killed", tmp_path)
    replica = open_replica(root)
    bound = units_bound(replica)
    messages = [
        decode_message(run.buffer[offset:end])
        for unit in plan([replica])
        for run in scan(unit)
        if isinstance(run, Run)
        for offset, end in zip(run.offsets, run.ends, strict=True)
    ]
    queue = [found for found in messages if (found.topic, found.queue_id) == ("StoreA", 0)]
    later = [found.queue_offset for found in queue if found.store_timestamp > bound.store_timestamp]
    assert later, "the checkpoint is older than the newest messages"
    path = root / "consumequeue" / "StoreA" / "0" / f"{later[-1] // 500 * 10_000:020d}"
    content = bytearray(path.read_bytes())
    at = later[-1] % 500 * CQ_UNIT_SIZE
    content[at : at + CQ_UNIT_SIZE] = ZERO
    path.write_bytes(content)
    assert derived_findings([replica]) == []
    content[at + 11] = 1
    path.write_bytes(content)
    [finding] = derived_findings([replica])
    assert (finding.kind, finding.first_offset) == (Kind.CONSUME_QUEUE_WRONG, later[-1])


def test_the_queues_of_a_topic_that_java_deleted_are_not_missed(tmp_path: Path) -> None:
    root = cut_out("single-4.9.5-clean", tmp_path)
    shutil.rmtree(root / "consumequeue" / "StoreB")
    found = derived_findings([open_replica(root)])
    assert [(finding.kind, finding.topic, finding.count) for finding in found] == [
        (Kind.CONSUME_QUEUE_MISSING, "StoreB", 180),
        (Kind.CONSUME_QUEUE_MISSING, "StoreB", 180),
    ]
    path = root / "config" / "topics.json"
    path.write_text(path.read_text().replace('"StoreB":{', '"Other":{'))
    assert derived_findings([open_replica(root)]) == []
