"""State records across releases: what an earlier one wrote is read, and a table that not all members know is not used.

state_records.json holds bytes that the release before named tables wrote: of changes, and of the full state that they
add up to.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from store_group import StoreGroup

from dledger.entry import Index, Term
from store.errors import StateRecordError
from store.message_store import MessageStore
from store.queues.consume_queue_store import QueueRow
from store.state import state_record
from store.state.state_machine import StateMachine
from store.state.state_proposals import ProposeStatus
from store.state.state_record import pack_change, pack_changes, unpack_record
from store.state.state_tables import StateTables
from store.state.table import StateChange, Table
from store.state.table_configs import DataVersion, SubscriptionGroupConfig, TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset, EndReset, ResetOffset
from store.state.tables.delay_offset_table import Delivery
from store.state.tables.subscription_group_table import (
    DeleteSubscriptionGroup,
    PutForbidden,
    PutSubscriptionGroup,
)
from store.state.tables.topic_config_table import DeleteTopic, PutTopicConfig

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("state_records.json").read_text())
BODIES = [bytes.fromhex(body) for body in RECORDED["changes"]]
FULL_STATE = bytes.fromhex(RECORDED["full_state"])
ROWS: list[QueueRow] = [(b"T", 3, 5, 9), (b"U", 0, 0, 1)]
CHANGES: list[list[StateChange]] = [
    [
        PutTopicConfig(TopicConfig("T", 4, 4, 6, "SINGLE_TAG", 0, True, {"+a": "b"})),
        PutTopicConfig(TopicConfig("Gone")),
        PutTopicConfig(TopicConfig("U", 16, 8, 2)),
    ],
    [
        PutSubscriptionGroup(SubscriptionGroupConfig("g", consume_enable=False, attributes={"x": "y"})),
        PutSubscriptionGroup(SubscriptionGroupConfig("h")),
    ],
    [
        CommitOffset("g", "T", 3, 1 << 40),
        CommitOffset("g", "Gone", 0, 5),
        CommitOffset("h", "U", 1, 9),
        CommitOffset("h", "T", 0, 2),
    ],
    [
        ResetOffset("g", "T", 0, 7),
        ResetOffset("g", "T", 2, 1),
        EndReset("g", "T", 0, 7),
        PutForbidden("g", "T", 4),
        PutForbidden("h", "U", 2),
        PutForbidden("h", "U", 0),
    ],
    [DeleteTopic("Gone"), DeleteSubscriptionGroup("h", True)],
    [Delivery(Index(6), ((1, 5, 2), (2, 9, 0), (2, 9, 3)))],
]


def applied(*more: StateChange) -> StateMachine:
    """What the recorded changes add up to, as of entry 8, in the middle of the delivery; and `more`, if any."""
    machine = StateMachine(is_whole=True)
    for number, body in enumerate(BODIES):
        machine.apply(body, Index(number), 100 * number, 1000 + number)
    if more:
        body = pack_changes([pack_change(change) for change in more])
        machine.apply(body, Index(9), 900, 1009)
    machine.settle(Index(8))
    return machine


def full_state_of(machine: StateMachine) -> bytes:
    machine.begin_full_state(1 << 20, 1, 1 << 20, Term(2), Index(8), lambda: ROWS)
    part = machine.next_part()
    assert part is not None
    return part


def taken(full_state: bytes) -> StateTables:
    """By a member that lacks what came before."""
    machine = StateMachine(is_whole=False)
    assert machine.apply(full_state, Index(20), 2000, 2000) == ROWS
    return machine.tables


def test_recorded_changes_are_read_and_written_byte_by_byte() -> None:
    assert [unpack_record(body) for body in BODIES] == CHANGES
    assert [pack_changes([pack_change(change) for change in changes]) for changes in CHANGES] == BODIES


def test_a_recorded_full_state_is_read_and_written_byte_by_byte() -> None:
    tables = taken(FULL_STATE)
    assert list(tables.topic_config_table.configs) == ["T", "U"]
    assert tables.topic_config_table.data_version == DataVersion(4, 1004)
    assert list(tables.subscription_group_table.configs) == ["g"]
    assert tables.subscription_group_table.forbidden == {"g": {"T": 4}}
    assert tables.consumer_offset_table.offsets == {"T@g": {3: 1 << 40, 0: 7, 2: 1}}
    assert tables.consumer_offset_table.resets == {"T@g": {2}}
    assert tables.delay_offset_table.offsets == {1: 7, 2: 10}
    tables.settle(Index(10))
    assert tables.delay_offset_table.offsets == {1: 7, 2: 12}
    assert full_state_of(applied()) == FULL_STATE


def test_each_kind_of_change_and_each_name_of_a_table_is_there_once() -> None:
    tables = StateTables().all
    kinds = [change.kind for table in tables for change in table.changes]
    names = [table.name for table in tables]
    assert len(set(kinds)) == len(kinds)
    assert len(set(names)) == len(names)
    assert max(map(len, names)) <= 64, "what a handshake takes"


class PutNote(StateChange, frozen=True):
    kind: ClassVar[int] = 99
    key: str
    text: str


class NoteTable(Table):
    """A table that the release of the recorded bytes does not know. Notes go with the topic that they are named by."""

    name = "notes"
    changes = (PutNote,)
    also_takes = (DeleteTopic,)

    def __init__(self) -> None:
        super().__init__()
        self.notes: dict[str, str] = {}

    def rows(self) -> dict[str, str]:
        return dict(self.notes)

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            match change:
                case PutNote(key, text):
                    self.notes[key] = text
                case DeleteTopic(topic):
                    self.notes.pop(topic, None)

    def pack(self) -> list[Any]:
        return list(self.notes.items())

    def unpack(self, values: list[Any]) -> None:
        self.notes = dict(values)


@pytest.fixture
def note_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """This release has the table; undone, it has not."""
    init = StateTables.__init__

    def with_notes(tables: StateTables) -> None:
        init(tables)
        tables.all = (*tables.all, NoteTable())

    with monkeypatch.context() as release:
        release.setattr(StateTables, "__init__", with_notes)
        release.setitem(state_record._KINDS, PutNote.kind, PutNote)
        yield release


@pytest.mark.usefixtures("note_table")
def test_a_table_that_is_not_used_leaves_no_trace() -> None:
    assert full_state_of(applied()) == FULL_STATE
    assert taken(FULL_STATE).pack() == applied().tables.pack()


def test_a_table_that_is_used_is_in_the_full_state_by_its_name(note_table: pytest.MonkeyPatch) -> None:
    machine = applied(PutNote("U", "for U"), PutNote("T", "for T"), DeleteTopic("T"))
    full_state = full_state_of(machine)
    tables = taken(full_state)
    assert tables.named["notes"].rows() == {"U": "for U"}
    assert tables.pack() == machine.tables.pack()
    tables.unpack(applied().tables.pack())
    assert tables.named["notes"].rows() == {}, "what a full state does not name is empty"
    note_table.undo()
    with pytest.raises(StateRecordError, match="tables that this program does not know: notes"):
        taken(full_state)


def test_a_table_is_not_used_before_all_members_know_it(
    tmp_path: Path, note_table: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A leader that has been upgraded, and two followers that are upgraded one by one."""
    group = StoreGroup(tmp_path, 3)
    with note_table.context() as former_release:
        former_release.setattr(MessageStore, "features", ())
        group.start()
        leader = group.lead()
    first, second = sorted(group.peers.keys() - {leader.id})

    def put_note(text: str) -> ProposeStatus:
        answers: list[ProposeStatus] = []
        leader.store.propose(PutNote("k", text), answers.append, group.now_ms)
        group.settle()
        (answer,) = answers
        return answer

    assert put_note("both") is ProposeStatus.MEMBER_OUTDATED
    assert f"{first}, {second} run a release without the table of notes" in caplog.text
    group.members[first].crash()
    group.start(first)
    assert put_note("one") is ProposeStatus.MEMBER_OUTDATED
    group.members[second].crash()
    assert put_note("it may come back as it was") is ProposeStatus.MEMBER_OUTDATED
    group.start(second)
    assert put_note("none") is ProposeStatus.APPLIED
    rows = [member.store.tables.named["notes"].rows() for member in group.members.values()]
    assert rows == [{"k": "none"}] * 3
    group.members[second].crash()
    assert put_note("what it told counts while it is away") is ProposeStatus.APPLIED
