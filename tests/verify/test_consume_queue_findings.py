"""ConsumeQueues against the log: which units are wrong, missing or too many, and nothing else."""

import errno
import os
import pickle
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from derived_store import (
    Stores,
    cut_out,
    derived_findings,
    entries_of,
    facts_of,
    made_once,
    read_unit,
    rewrite_entry,
    unit_path,
    write_units,
)

from dledger.entry import EntryHeader
from message.decoder import decode_message
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE, FILLER
from verify.derived import DerivedChecks, check, consumers
from verify.findings import Finding, Kind
from verify.log.entry_scan import Run, scan
from verify.queues import queue_files
from verify.queues.queue_findings import QueuePart
from verify.queues.units_bound import units_bound
from verify.replica import EVERYTHING, open_replica
from verify.work import plan

CUTS = (None, 1, 2, 16)
ZERO = bytes(CQ_UNIT_SIZE)


@pytest.fixture
def stores(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(made_once(tmp_path_factory), tmp_path)


def places(root: Path, topic: str, queue_id: int) -> list[EntryHeader]:
    """By queue offset, the entries that have the queue's messages."""
    found: list[EntryHeader] = []
    for header, body in entries_of(open_replica(root)):
        message = decode_message(body)
        if (message.topic, message.queue_id) == (topic, queue_id) and not message.sys_flag & 4:
            assert message.queue_offset == len(found)
            found.append(header)
    return found


def place(finding: Finding) -> tuple[object, ...]:
    """All of a finding but its sentence and its file."""
    return (
        finding.kind,
        finding.replica,
        finding.topic,
        finding.queue_id,
        (finding.first_offset, finding.last_offset),
        (finding.first_index, finding.last_index),
        finding.count,
    )


def changed_unit(root: Path, topic: str, queue_id: int, offset: int) -> bytes:
    phy_offset, size, code = read_unit(root, topic, queue_id, offset)
    return CQ_UNIT.pack(phy_offset, size + 1, code)


@pytest.mark.parametrize("unit_count", CUTS)
def test_sound_stores_have_no_finding(stores: Stores, unit_count: int | None) -> None:
    assert len(stores.replicas()[0].data_files) >= 5
    assert {header.term for header, _ in entries_of(stores.replicas()[0])} >= {1, 2, 3}
    assert stores.findings(unit_count) == []


@pytest.mark.parametrize("unit_count", CUTS)
def test_a_wrong_unit_is_named_with_its_entry(stores: Stores, unit_count: int | None) -> None:
    root = stores.roots[1]
    header = places(root, "Orders", 1)[7]
    phy_offset, size, code = read_unit(root, "Orders", 1, 7)
    write_units(root, "Orders", 1, 7, CQ_UNIT.pack(phy_offset + 1, size, code))
    assert stores.findings(unit_count) == [
        Finding(
            kind=Kind.CONSUME_QUEUE_WRONG,
            replica="n1",
            file="consumequeue/Orders/1/00000000000000000000",
            first_index=header.index,
            last_index=header.index,
            topic="Orders",
            queue_id=1,
            first_offset=7,
            last_offset=7,
            sentence=f"the unit says physical offset {phy_offset + 1}, {size} bytes, tags code {code}; "
            f"the log has physical offset {header.pos + 48}, {size} bytes, tags code {code}",
        )
    ]


@pytest.mark.parametrize("unit_count", CUTS)
def test_units_one_behind_the_other_are_one_finding_over_files_and_ranges(
    stores: Stores, unit_count: int | None
) -> None:
    root = stores.roots[2]
    for offset in range(44, 56):
        write_units(root, "Audit", 0, offset, changed_unit(root, "Audit", 0, offset))
    headers = places(root, "Audit", 0)
    [finding] = stores.findings(unit_count)
    indexes = headers[44].index, headers[55].index
    assert place(finding) == (Kind.CONSUME_QUEUE_WRONG, "n2", "Audit", 0, (44, 55), indexes, 12)
    assert finding.file == "consumequeue/Audit/0/00000000000000000000"
    assert finding.sentence.startswith("12 units; of the first: the unit says ")


def test_faults_that_do_not_touch_are_apart(stores: Stores) -> None:
    root = stores.roots[0]
    for queue_id, offset in ((0, 3), (0, 5), (1, 4)):
        write_units(root, "Audit", queue_id, offset, changed_unit(root, "Audit", queue_id, offset))
    write_units(root, "Audit", 0, 4, ZERO)
    found = [
        (finding.kind, finding.queue_id, finding.first_offset, finding.count) for finding in stores.findings()
    ]
    assert found == [
        (Kind.CONSUME_QUEUE_WRONG, 0, 3, 1),
        (Kind.CONSUME_QUEUE_WRONG, 0, 5, 1),
        (Kind.CONSUME_QUEUE_WRONG, 1, 4, 1),
        (Kind.CONSUME_QUEUE_MISSING, 0, 4, 1),
    ]


@pytest.mark.parametrize("unit_count", CUTS)
def test_a_delayed_message_is_filed_under_its_delivery_time(stores: Stores, unit_count: int | None) -> None:
    root = stores.roots[0]
    phy_offset, size, code = read_unit(root, "SCHEDULE_TOPIC_XXXX", 2, 5)
    write_units(root, "SCHEDULE_TOPIC_XXXX", 2, 5, CQ_UNIT.pack(phy_offset, size, code + 1))
    header = places(root, "SCHEDULE_TOPIC_XXXX", 2)[5]
    assert [place(finding) for finding in stores.findings(unit_count)] == [
        (Kind.CONSUME_QUEUE_WRONG, "n0", "SCHEDULE_TOPIC_XXXX", 2, (5, 5), (header.index,) * 2, 1)
    ]


def test_another_delay_of_whole_seconds_is_another_setting(stores: Stores) -> None:
    """No file tells what messageDelayLevel the broker had."""
    root = stores.roots[0]
    phy_offset, size, code = read_unit(root, "SCHEDULE_TOPIC_XXXX", 2, 5)
    write_units(root, "SCHEDULE_TOPIC_XXXX", 2, 5, CQ_UNIT.pack(phy_offset, size, code + 7000))
    assert stores.findings() == []
    write_units(root, "SCHEDULE_TOPIC_XXXX", 2, 5, CQ_UNIT.pack(phy_offset, size + 1, code + 7000))
    assert len(stores.findings()) == 1
    write_units(root, "SCHEDULE_TOPIC_XXXX", 2, 5, CQ_UNIT.pack(phy_offset, size, code - 1_000_000_000))
    assert len(stores.findings()) == 1


def test_zeros_where_a_unit_should_be_are_a_missing_one(stores: Stores) -> None:
    root = stores.roots[1]
    headers = places(root, "Payments", 0)
    last = len(headers) - 1
    write_units(root, "Payments", 0, last - 2, 3 * ZERO)
    assert [place(finding) for finding in stores.findings()] == [
        (
            Kind.CONSUME_QUEUE_MISSING,
            "n1",
            "Payments",
            0,
            (last - 2, last),
            (headers[last - 2].index, headers[last].index),
            3,
        )
    ]


@pytest.mark.parametrize("unit_count", CUTS)
def test_a_file_that_is_gone_or_cut_short_misses_its_units(stores: Stores, unit_count: int | None) -> None:
    unit_path(stores.roots[0], "Orders", 0, 0).unlink()
    with unit_path(stores.roots[1], "Orders", 0, 0).open("r+b") as file:
        file.truncate(45 * CQ_UNIT_SIZE)
    headers = places(stores.roots[0], "Orders", 0)
    indexes = [header.index for header in headers]
    findings = stores.findings(unit_count)
    assert [place(finding) for finding in findings] == [
        (Kind.CONSUME_QUEUE_MISSING, "n0", "Orders", 0, (0, 49), (indexes[0], indexes[49]), 50),
        (Kind.CONSUME_QUEUE_MISSING, "n1", "Orders", 0, (45, 49), (indexes[45], indexes[49]), 5),
    ]
    assert {finding.file for finding in findings} == {"consumequeue/Orders/0/00000000000000000000"}


@pytest.mark.parametrize("unit_count", CUTS)
def test_a_topic_without_a_directory_misses_all_its_units(stores: Stores, unit_count: int | None) -> None:
    root = stores.roots[2]
    shutil.rmtree(root / "consumequeue" / "Payments")
    expected = []
    for queue_id in (0, 1):
        headers = places(root, "Payments", queue_id)
        bounds = headers[0].index, headers[-1].index
        offsets = 0, len(headers) - 1
        expected.append(
            (Kind.CONSUME_QUEUE_MISSING, "n2", "Payments", queue_id, offsets, bounds, len(headers))
        )
    findings = stores.findings(unit_count)
    assert [place(finding) for finding in findings] == expected
    assert findings[0].file == "consumequeue/Payments/0"


@pytest.mark.parametrize("unit_count", CUTS)
def test_units_behind_the_last_message_are_extra(stores: Stores, unit_count: int | None) -> None:
    root = stores.roots[0]
    end = len(places(root, "Orders", 1))
    units = [read_unit(root, "Orders", 1, offset) for offset in (3, 4)]
    write_units(root, "Orders", 1, end, b"".join(CQ_UNIT.pack(*unit) for unit in units))
    findings = stores.findings(unit_count)
    assert [place(finding) for finding in findings] == [
        (Kind.CONSUME_QUEUE_EXTRA, "n0", "Orders", 1, (end, end + 1), (None, None), 2)
    ]
    assert findings[0].file == "consumequeue/Orders/1/00000000000000001000"


def test_a_queue_that_the_log_knows_nothing_of_is_extra(stores: Stores) -> None:
    root = stores.roots[1]
    for topic, offset in (("Ghost", 2), ("Orders", 0)):
        path = unit_path(root, topic, 9, offset)
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(50 * CQ_UNIT_SIZE))
        write_units(root, topic, 9, offset, CQ_UNIT.pack(4800, 200, 0))
    (root / "consumequeue" / "Empty" / "0").mkdir(parents=True)
    assert [place(finding) for finding in stores.findings()] == [
        (Kind.CONSUME_QUEUE_EXTRA, "n1", "Ghost", 9, (2, 2), (None, None), 1),
        (Kind.CONSUME_QUEUE_EXTRA, "n1", "Orders", 9, (0, 0), (None, None), 1),
    ]


def test_expired_units_and_the_fillers_before_them_are_none(stores: Stores) -> None:
    root = stores.roots[0]
    path = unit_path(root, "Old", 0, 0)
    path.parent.mkdir(parents=True)
    units = FILLER * 3 + CQ_UNIT.pack(4800, 200, 0) * 2
    path.write_bytes(units.ljust(50 * CQ_UNIT_SIZE, b"\0"))
    replica = open_replica(root)
    later = replace(replica, data_files=replica.data_files[1:])
    begin = facts_of(later)
    assert begin["n0"].begin_pos >= 65536
    assert derived_findings([later]) == []
    whole = derived_findings([replica])
    assert [place(finding) for finding in whole] == [
        (Kind.CONSUME_QUEUE_EXTRA, "n0", "Old", 0, (0, 4), (None, None), 5)
    ]


def test_units_of_a_log_that_begins_late_are_compared_from_there(stores: Stores) -> None:
    replica = open_replica(stores.roots[0])
    later = replace(replica, data_files=replica.data_files[2:])
    first = next(header for header, _ in entries_of(later)).index
    headers = places(stores.roots[0], "Audit", 1)
    offset = next(at for at, header in enumerate(headers) if header.index >= first)
    write_units(stores.roots[0], "Audit", 1, offset - 1, ZERO)
    assert derived_findings([later]) == []
    write_units(stores.roots[0], "Audit", 1, offset, ZERO)
    [finding] = derived_findings([later])
    assert (finding.kind, finding.first_offset) == (Kind.CONSUME_QUEUE_MISSING, offset)


def test_a_store_that_crashed_answers_for_its_checkpoint_alone(stores: Stores) -> None:
    root = stores.roots[0]
    headers = places(root, "Orders", 0)
    (root / "abort").touch()
    replica = open_replica(root)
    assert (replica.stopped_cleanly, units_bound(replica).index) == (False, replica.applied_index)
    crashed = replace(replica, applied_index=headers[60].index)
    write_units(root, "Orders", 0, 61, ZERO + changed_unit(root, "Orders", 0, 62))
    write_units(root, "Orders", 0, len(headers), CQ_UNIT.pack(1 << 40, 100, 0))
    assert derived_findings([crashed]) == []
    write_units(root, "Orders", 0, 60, ZERO)
    [finding] = derived_findings([crashed])
    assert (finding.kind, finding.first_offset, finding.count) == (Kind.CONSUME_QUEUE_MISSING, 60, 1)


def test_what_a_clean_stop_left_uncommitted_has_no_units(stores: Stores) -> None:
    root = stores.roots[0]
    headers = places(root, "Orders", 0)
    committed = headers[-3].index
    write_units(root, "Orders", 0, len(headers) - 2, 2 * ZERO)
    shutil.rmtree(root / "index")  # in it, too, nothing would be of what is not committed
    replica = replace(open_replica(root), applied_index=committed, java_committed_index=committed)
    assert derived_findings([replica]) == []


def test_a_live_replica_is_judged_up_to_its_bound(stores: Stores) -> None:
    root = stores.roots[0]
    headers = places(root, "Orders", 0)
    live = replace(open_replica(root), is_live=True, applied_index=headers[40].index)
    write_units(root, "Orders", 0, 41, changed_unit(root, "Orders", 0, 41))
    assert derived_findings([live], up_to=headers[40].index) == []
    write_units(root, "Orders", 0, 40, changed_unit(root, "Orders", 0, 40))
    [finding] = derived_findings([live], up_to=headers[40].index)
    assert (finding.kind, finding.first_offset, finding.last_offset) == (Kind.CONSUME_QUEUE_WRONG, 40, 40)


@pytest.mark.parametrize("offset", [20, -1])
@pytest.mark.parametrize("unit_count", CUTS)
def test_the_unit_of_a_damaged_entry_is_not_extra(
    stores: Stores, offset: int, unit_count: int | None
) -> None:
    root = stores.roots[0]
    replica = open_replica(root)
    header = places(root, "Orders", 0)[offset]
    file = next(file for file in reversed(replica.data_files) if file.base <= header.pos)
    with open(file.path, "r+b") as opened:
        opened.seek(header.pos - file.base + 150)
        opened.write(b"\xff")
    sound = facts_of(open_replica(stores.roots[1]))["n1"]
    facts = {"n0": replace(sound, damaged=((header.pos, header.pos + header.size),))}
    assert derived_findings([replica], unit_count=unit_count, facts=facts) == []


def test_units_of_a_tail_that_the_log_has_lost_are_the_log_s_matter(stores: Stores) -> None:
    replica = open_replica(stores.roots[0])
    shorter = replace(replica, data_files=replica.data_files[:-2])
    [facts] = facts_of(shorter).values()
    unaware = replace(shorter, applied_index=facts.end_index, java_committed_index=facts.end_index)
    lost = {"n0": replace(facts, damaged=((facts.end_pos, EVERYTHING),))}
    assert derived_findings([unaware], facts=lost) == []
    assert {finding.kind for finding in derived_findings([unaware])} == {Kind.CONSUME_QUEUE_EXTRA}


@pytest.mark.parametrize("unit_count", CUTS)
def test_a_sound_entry_without_a_message_is_named(stores: Stores, unit_count: int | None) -> None:
    root = stores.roots[1]
    headers = places(root, "Orders", 0)

    def break_magic(record: bytearray) -> None:
        record[4] ^= 0xFF

    header = rewrite_entry(root, headers[11].index, break_magic)
    base = header.pos // 65536 * 65536
    assert stores.findings(unit_count) == [
        Finding(
            kind=Kind.UNDECODABLE_MESSAGE,
            replica="n1",
            file=f"dledger-n1/data/{base:020d}",
            first_index=header.index,
            last_index=header.index,
            sentence="the entry is sound, its message is not: magic 0x25a320a7",
        )
    ]


def test_a_record_that_says_it_is_elsewhere_is_named(stores: Stores) -> None:
    root = stores.roots[1]
    headers = places(root, "Orders", 0)

    def move(record: bytearray) -> None:
        record[28:36] = (77).to_bytes(8, "big")

    header = rewrite_entry(root, headers[11].index, move)
    [finding] = stores.findings()
    assert (finding.kind, finding.first_index, finding.replica) == (Kind.WRONG_POS, header.index, "n1")
    assert f"physical offset 77, it is at {header.pos + 48}" in finding.sentence


@pytest.mark.parametrize("unit_count", CUTS)
def test_messages_with_an_offset_that_one_before_has_are_called_so(
    stores: Stores, unit_count: int | None
) -> None:
    """As RocketMQ gives them, when a member leads that has left messages out of its ConsumeQueues."""
    root = stores.roots[1]
    headers = places(root, "Orders", 1)
    last, first = len(headers) - 1, len(headers) - 2

    def at(queue_offset: int) -> Callable[[bytearray], None]:
        def patch(record: bytearray) -> None:
            record[20:28] = queue_offset.to_bytes(8, "big")

        return patch

    for number in (first, last):
        rewrite_entry(root, headers[number].index, at(number - 2))
        write_units(root, "Orders", 1, number, ZERO)
    hidden = headers[first].pos + 48
    shown, size, code = read_unit(root, "Orders", 1, first - 2)
    [finding] = stores.findings(unit_count)
    indexes = headers[first].index, headers[last].index
    assert place(finding) == (Kind.QUEUE_OFFSET_TWICE, "n1", "Orders", 1, (first - 2, last - 2), indexes, 2)
    assert finding.sentence.startswith(
        "2 messages; of the first: no consumer finds the message (physical offset "
    )
    assert f"(physical offset {hidden}, " in finding.sentence
    assert (
        f"one before it has its offset (physical offset {shown}, {size} bytes, tags code {code})"
        in finding.sentence
    )


def test_a_file_that_cannot_be_read_is_one_finding(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(unit_path(stores.roots[0], "Orders", 0, 50))
    pread = queue_files._pread

    def failing(file: str, offset: int, size: int) -> bytes:
        if file == path:
            raise OSError(errno.EIO, "Input/output error", file)
        return pread(file, offset, size)

    monkeypatch.setattr(queue_files, "_pread", failing)
    for unit_count in CUTS:
        [finding] = stores.findings(unit_count)
        assert (finding.kind, finding.replica) == (Kind.UNREADABLE_FILE, "n0")
        assert finding.file == "consumequeue/Orders/0/00000000000000001000"


def test_a_topic_s_name_does_not_lead_out_of_the_store(stores: Stores) -> None:
    directory = queue_files.queue_directory(stores.replicas()[0], b"../../etc", 0)
    assert directory.endswith(f"/consumequeue/{b'../../etc'.hex()}/0")


def test_names_that_are_no_utf_8_can_be_printed(stores: Stores) -> None:
    path = unit_path(stores.roots[1], os.fsdecode(b"Gh\xff"), 9, 0)
    path.parent.mkdir(parents=True)
    path.write_bytes(CQ_UNIT.pack(4800, 200, 0).ljust(50 * CQ_UNIT_SIZE, b"\0"))
    [finding] = stores.findings()
    assert (finding.topic, finding.file) == ("Gh?", f"consumequeue/Gh?/9/{0:020d}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_any_flipped_bit_of_a_unit_is_found_there(stores: Stores, seed: int) -> None:
    random = Random(seed)
    number = random.randrange(3)
    topic, queue_id = random.choice(
        [("Orders", 0), ("Payments", 1), ("Later", 0), ("SCHEDULE_TOPIC_XXXX", 1)]
    )
    root = stores.roots[number]
    headers = places(root, topic, queue_id)
    offset = random.randrange(len(headers))
    unit = bytearray(CQ_UNIT.pack(*read_unit(root, topic, queue_id, offset)))
    unit[random.randrange(CQ_UNIT_SIZE)] ^= 1 << random.randrange(8)
    write_units(root, topic, queue_id, offset, unit)
    found = [place(finding) for finding in stores.findings(random.choice(CUTS))]
    index = headers[offset].index
    wrong = Kind.CONSUME_QUEUE_WRONG
    assert found == [(wrong, f"n{number}", topic, queue_id, (offset, offset), (index, index), 1)]


def test_units_of_work_and_their_results_can_be_sent(stores: Stores) -> None:
    replicas = stores.replicas()
    checks = DerivedChecks(replicas)
    logs = {replica.name: facts_of(replica)[replica.name] for replica in replicas}
    for unit in plan(replicas):
        listeners = consumers(unit)
        for found in scan(unit):
            if isinstance(found, Run):
                for listener in listeners:
                    listener.feed(found)
        for listener in listeners:
            for part in listener.finish():
                checks.take(pickle.loads(pickle.dumps(part)))
    units = pickle.loads(pickle.dumps(checks.units(logs)))
    assert {type(unit).__name__ for unit in units} == {
        "QueueExtras",
        "IndexFilePlan",
        "StateReplay",
        "ConfigFiles",
    }
    assert [finding for unit in units for finding in check(unit)] == []


def test_a_topic_that_has_no_directory_because_its_name_is_too_long_ends_nothing(tmp_path: Path) -> None:
    replica = open_replica(cut_out("single-4.9.5-clean", tmp_path))
    checks = DerivedChecks([replica])
    checks.take(QueuePart(replica.name, 0, 1, [(b"o/" * 64, 0, 0, 1)], [], [], []))
    checks.units(facts_of(replica))
    assert any("o/o/" in note for note in checks.notes)
