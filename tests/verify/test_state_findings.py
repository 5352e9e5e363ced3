"""State records replayed: full states against the changes before them, parts in their order, groups in their queues."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from zlib import crc32

import msgpack
import pytest
from derived_store import GROUP, Stores, derived_findings, entries_of, facts_of, made_once, rewrite_entry
from msgspec import structs

from dledger.entry import EntryHeader, EntryKind, Index, Pos, Term
from message.decoder import decode_message
from message.encoder import encode_record
from store.state.state_record import (
    FullStatePart,
    pack_change,
    pack_changes,
    pack_full_state_part,
    unpack_record,
)
from store.state.table import StateChange
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.delay_offset_table import Delivery
from store.state.tables.pop_queue import NO_OFFSET
from store.state.tables.pop_table import (
    ChangeInvisible,
    PopMessages,
    Popped,
    PoppedQueue,
    ReviveMessages,
)
from verify.derived import DerivedUnit, check
from verify.findings import Finding, Kind
from verify.log.data_file import Layout
from verify.replica import Replica, open_replica
from verify.state import state_check
from verify.state.group_offsets import QueueEnds

CUTS = (None, 1, 2, 16)
State = tuple[EntryHeader, list[StateChange] | FullStatePart]


@pytest.fixture
def stores(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(made_once(tmp_path_factory), tmp_path)


def states(root: Path) -> list[State]:
    return [
        (header, unpack_record(decode_message(body).body))
        for header, body in entries_of(open_replica(root))
        if header.kind == EntryKind.STATE
    ]


def parts(root: Path) -> list[tuple[EntryHeader, FullStatePart]]:
    return [(header, record) for header, record in states(root) if isinstance(record, FullStatePart)]


def commits(root: Path) -> list[tuple[EntryHeader, CommitOffset]]:
    """Records of one offset commit each."""
    found = []
    for header, record in states(root):
        if isinstance(record, list) and len(record) == 1 and isinstance(record[0], CommitOffset):
            found.append((header, record[0]))
    return found


def rewrite_body(root: Path, index: int, change: Callable[[bytes], bytes]) -> EntryHeader:
    """Changes the body of an entry's message, which keeps its size, with all CRCs."""

    def patch(record: bytearray) -> None:
        body = decode_message(bytes(record)).body
        changed = change(body)
        assert len(changed) == len(body) > 0
        assert changed != body
        record[88 : 88 + len(body)] = changed
        record[8:12] = (crc32(changed) & 0x7FFFFFFF).to_bytes(4, "big")

    return rewrite_entry(root, index, patch)


def rewrite_part(root: Path, index: int, change: Callable[[FullStatePart], FullStatePart]) -> None:
    def changed(body: bytes) -> bytes:
        part = unpack_record(body)
        assert isinstance(part, FullStatePart)
        return pack_full_state_part(change(part))

    rewrite_body(root, index, changed)


def rewrite_commit(root: Path, index: int, offset: int) -> None:
    def changed(body: bytes) -> bytes:
        [commit] = unpack_record(body)  # type: ignore[misc]
        assert isinstance(commit, CommitOffset)
        return pack_changes([pack_change(structs.replace(commit, offset=offset))])

    rewrite_body(root, index, changed)


def said(findings: list[Finding]) -> list[tuple[Kind, str, int | None, int | None, int]]:
    return [
        (finding.kind, finding.replica, finding.first_index, finding.last_index, finding.count)
        for finding in findings
    ]


def inconsistent(header: EntryHeader) -> tuple[Kind, str, int, int, int]:
    """n0 is the one that is replayed."""
    return Kind.STATE_RECORD, "n0", header.index, header.index, 1


def test_the_stores_hold_full_states_of_several_parts_in_each_term(stores: Stores) -> None:
    found = parts(stores.roots[0])
    assert {part.term for _, part in found} == {1, 2, 3}
    assert {part.count for _, part in found} == {2}
    assert len(found) >= 10


@pytest.mark.parametrize("unit_count", CUTS)
def test_a_full_state_that_says_something_else_is_named_by_its_last_part(
    stores: Stores, unit_count: int | None
) -> None:
    first, last = parts(stores.roots[0])[4:6]
    rewrite_part(
        stores.roots[0],
        first[0].index,
        lambda part: structs.replace(part, data=part.data.replace(b"xx", b"xy", 1)),
    )
    findings = stores.findings(unit_count)
    assert said(findings) == [inconsistent(last[0])]
    base = last[0].pos // 65536 * 65536
    assert findings[0].file == f"dledger-n0/data/{base:020d}"
    assert findings[0].sentence == (
        f"the full state as of entry {last[1].applied_index} is not what the changes before it add up to: "
        "its topics differ, first in Orders"
    )


def test_an_offset_that_the_full_state_has_otherwise_is_named(stores: Stores) -> None:
    [*_, (first, part)] = [found for found in parts(stores.roots[0]) if found[1].number == 1]
    at = part.data.index(f"Orders@{GROUP}".encode()) + len(f"Orders@{GROUP}")
    changed = bytearray(part.data)
    assert changed[at : at + 3] == b"\x91\x92\x00", "queue 0, then its offset"
    changed[at + 3] -= 1
    rewrite_part(stores.roots[0], first.index, lambda part: structs.replace(part, data=bytes(changed)))
    [finding] = stores.findings()
    assert said([finding]) == [inconsistent(first)]
    assert finding.sentence.endswith(f"its consumer offsets differ, first in Orders@{GROUP}")


def test_a_change_that_was_altered_shows_at_the_next_full_state_and_not_again(stores: Stores) -> None:
    """The change itself is a sound record; what it was is known from the full state behind it."""
    (_, before), (first_after, after) = [found for found in parts(stores.roots[0]) if found[1].number == 1][
        1:3
    ]
    header, commit = next(
        found for found in reversed(commits(stores.roots[0])) if found[0].index <= after.applied_index
    )
    assert header.index > before.applied_index
    rewrite_commit(stores.roots[0], header.index, commit.offset - 1)
    assert said(stores.findings()) == [inconsistent(first_after)]


@pytest.mark.parametrize("unit_count", CUTS)
def test_a_record_that_cannot_be_read_is_named(stores: Stores, unit_count: int | None) -> None:
    header, _ = commits(stores.roots[0])[10]
    rewrite_body(stores.roots[0], header.index, lambda body: body[:1] + b"\x09" + body[2:])
    findings = stores.findings(unit_count)
    assert said(findings) == [inconsistent(header)]
    assert findings[0].sentence == "a state record of version 9; this program reads 1"


def test_a_state_record_whose_message_was_altered_under_its_crc_is_named(stores: Stores) -> None:
    header, _ = commits(stores.roots[0])[10]

    def patch(record: bytearray) -> None:
        record[8] ^= 1

    rewrite_entry(stores.roots[0], header.index, patch)
    [finding] = stores.findings()
    assert said([finding]) == [inconsistent(header)]
    assert finding.sentence == "the message's body does not have its CRC"


@pytest.mark.parametrize("number", [0, 1])
def test_parts_out_of_order_are_named_once(stores: Stores, number: int) -> None:
    """Part 1 says that it is part 0, or part 0 that it is part 1."""
    header, _ = parts(stores.roots[0])[4 + number]
    rewrite_part(stores.roots[0], header.index, lambda part: structs.replace(part, number=1 - number))
    [finding] = stores.findings()
    assert said([finding]) == [inconsistent(header)]
    assert finding.sentence.endswith("out of order")


def test_a_part_of_another_term_is_named(stores: Stores) -> None:
    header, _ = parts(stores.roots[0])[-1]
    rewrite_part(stores.roots[0], header.index, lambda part: structs.replace(part, term=part.term - 1))
    [finding] = stores.findings()
    assert said([finding]) == [inconsistent(header)]
    assert finding.sentence.endswith(f"cannot stand in entry {header.index} of term {header.term}")


def test_a_full_state_that_knows_of_messages_nobody_has_is_named(stores: Stores) -> None:
    header, part = next(found for found in parts(stores.roots[0]) if found[1].number == 1)
    at = part.data.index(b"\xc4\x06Orders\x00") + len(b"\xc4\x06Orders\x00")
    changed = bytearray(part.data)
    changed[at + 1] = 127
    rewrite_part(stores.roots[0], header.index, lambda part: structs.replace(part, data=bytes(changed)))
    [finding] = stores.findings()
    assert said([finding]) == [inconsistent(header)]
    assert "says that queue Orders/0 ends at 127, its messages end at " in finding.sentence


def test_a_log_that_begins_late_is_judged_from_its_first_full_state_on(stores: Stores) -> None:
    replica = open_replica(stores.roots[0])
    later = replace(replica, data_files=replica.data_files[2:])
    assert derived_findings([later]) == []
    second = [found for found in parts(stores.roots[0]) if found[0].pos > later.begin_pos][4]
    rewrite_part(
        stores.roots[0],
        second[0].index,
        lambda part: structs.replace(part, data=part.data.replace(b"xx", b"xy", 1)),
    )
    [finding] = derived_findings([later])
    assert finding.kind is Kind.STATE_RECORD


@pytest.mark.parametrize("what", ["change", "part"])
def test_what_follows_lost_entries_is_judged_after_the_next_full_state(stores: Stores, what: str) -> None:
    root = stores.roots[0]
    header = commits(root)[12][0] if what == "change" else parts(root)[4][0]
    sound = facts_of(open_replica(root))["n0"]
    replica = open_replica(root)
    file = next(file for file in reversed(replica.data_files) if file.base <= header.pos)
    with open(file.path, "r+b") as opened:
        opened.seek(header.pos - file.base + 60)
        opened.write(b"\xff\xff")
    facts = {"n0": replace(sound, damaged=((header.pos, header.pos + header.size),))}
    assert derived_findings([replica], facts=facts) == []


def test_a_file_that_retention_takes_after_pass_1_is_not_replayed(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = open_replica(stores.roots[0])

    def check_later(unit: DerivedUnit) -> Iterator[Finding]:
        Path(replica.data_files[0].path).unlink(missing_ok=True)
        return check(unit)

    monkeypatch.setattr("derived_store.check", check_later)
    assert derived_findings([replica]) == []


def test_a_committed_offset_behind_the_queue_s_end_is_named(stores: Stores) -> None:
    header, commit = commits(stores.roots[0])[-1]
    full_states = [part for _, part in parts(stores.roots[0])]
    assert full_states[-1].applied_index < header.index, "no full state speaks of it"
    rewrite_commit(stores.roots[0], header.index, 127)
    [finding] = stores.findings()
    assert (finding.kind, finding.replica, finding.file) == (Kind.GROUP_OFFSET, "n0", "")
    assert (finding.topic, finding.queue_id, finding.first_offset) == ("Orders", commit.queue_id, 127)
    assert finding.sentence.startswith(f"group {GROUP} is at offset 127, the queue's next message will have ")


def test_what_is_not_committed_is_not_replayed(stores: Stores) -> None:
    header, _ = commits(stores.roots[0])[-1]
    rewrite_commit(stores.roots[0], header.index, 127)
    replica = open_replica(stores.roots[0])
    facts = facts_of(replica, committed_index=header.index - 1)
    assert derived_findings([replica], facts=facts) == []


def test_a_replica_whose_log_is_replayed_elsewhere_is_not_replayed_again(stores: Stores) -> None:
    header, _ = commits(stores.roots[1])[-1]
    rewrite_commit(stores.roots[1], header.index, 127)
    assert stores.findings() == []


def test_what_was_delivered_is_part_of_the_state(stores: Stores) -> None:
    """A full state says that one more delayed message of level 1 was delivered."""
    [*_, (header, part)] = [found for found in parts(stores.roots[0]) if found[1].number == 1]
    tables, _ = msgpack.unpackb(
        b"".join(part.data for part in _record_of(stores, part)), strict_map_key=False
    )
    delivered = dict(tables[6][1])
    assert delivered[1] > 0
    at = part.data.rindex(bytes([1, delivered[1], 0x92, 2, delivered[2]]))
    changed = bytearray(part.data)
    changed[at + 1] += 1
    rewrite_part(stores.roots[0], header.index, lambda part: structs.replace(part, data=bytes(changed)))
    [finding] = stores.findings()
    assert said([finding]) == [inconsistent(header)]
    assert finding.sentence.endswith("its delay offsets differ, first in 1")


def _record_of(stores: Stores, part: FullStatePart) -> list[FullStatePart]:
    return [found for _, found in parts(stores.roots[0]) if found.applied_index == part.applied_index]


def bare_replay(*frozen: int) -> state_check._Replay:
    """Of a log of which only what take() is given counts."""
    return state_check._Replay(
        state_check.StateReplay(
            Replica(
                name="n0",
                group="",
                directory="",
                layout=Layout.DLEDGER,
                data_directory="",
                data_files=(),
                data_file_size=0,
            ),
            b"",
            frozenset(frozen),
            True,
            99,
            (),
            QueueEnds({}, False, False, 99),
        )
    )


def take(
    replay: state_check._Replay, index: int, term: int, kind: EntryKind, *changes: StateChange
) -> list[Finding]:
    body = pack_changes([pack_change(change) for change in changes])
    record = encode_record(b"s", 0, 0, 0, 0, 12, 1, bytes(8), 1, bytes(8), 0, 0, body, b"")
    header = EntryHeader(1, 48 + len(record), Index(index), Term(term), Pos(0), kind, 0, 0, len(record))
    return list(replay.take(header, record))


def test_a_delivery_cut_off_by_a_new_term_is_counted_as_far_as_it_came() -> None:
    """The no-op ends it: messages of the next term at these indexes were not announced."""
    replay = bare_replay(14)
    assert take(replay, 10, 1, EntryKind.STATE, Delivery(Index(11), ((1, 5, 10),))) == []
    assert take(replay, 13, 2, EntryKind.NO_OP) == []
    assert take(replay, 20, 2, EntryKind.STATE) == []
    assert replay.tables.delay_offset_table.offsets == {1: 7}, "entries 11 and 12"


def test_a_record_behind_a_revival_meets_its_messages_ended() -> None:
    """The popped message has come again when its old handle asks for more time, which therefore does nothing."""
    replay = bare_replay()
    popped = Popped("g", "T", 0, 0, 10, 1)
    pop = PopMessages("g", 10, 100, (PoppedQueue("T", 0, NO_OFFSET, 0, 1, 1),))
    assert take(replay, 9, 1, EntryKind.STATE, pop) == []
    assert take(replay, 10, 1, EntryKind.STATE, ReviveMessages(Index(11), (popped,), ())) == []
    assert take(replay, 12, 1, EntryKind.STATE, ChangeInvisible(popped, 20, 100)) == []
    assert replay.tables.pop_table.in_flight_count == 0
