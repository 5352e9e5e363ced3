"""Full-state records: when a leader writes one, how its parts come together, and how a member starts from one."""

from pathlib import Path

import msgpack
import pytest
from store_group import DATA_FILE_SIZE, StoreGroup, StoreMember, message

from dledger.entry import EntryKind, Index, Term, walk
from message.decoder import decode_message
from store.errors import StateRecordError
from store.queues.consume_queue_store import QueueRow
from store.state.full_state import FullState, FullStateLog, split_full_state
from store.state.state_machine import StateMachine
from store.state.state_record import (
    FullStatePart,
    pack_change,
    pack_changes,
    pack_full_state_part,
    unpack_record,
)
from store.state.table_configs import TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.topic_config_table import PutTopicConfig


def parts_of(data: bytes, size: int, term: int = 1, applied_index: int = 9) -> list[FullStatePart]:
    return split_full_state(data, Term(term), Index(applied_index), size)


class TestFullStateLog:
    def test_parts_in_order_make_the_record(self) -> None:
        full_states = FullStateLog()
        records = [full_states.add(part, 100) for part in parts_of(b"abcdefg", 3)]
        assert records == [None, None, FullState(Index(9), b"abcdefg")]
        assert (full_states.complete_index, full_states.size, full_states.in_progress) == (9, 7, False)

    def test_a_record_unfinished_at_a_term_change_is_void(self) -> None:
        full_states = FullStateLog()
        parts = parts_of(b"abcdefg", 3)
        full_states.add(parts[0], 100)
        full_states.void()
        assert [full_states.add(part, 100) for part in parts[1:]] == [None, None]
        assert full_states.complete_index == -1

    @pytest.mark.parametrize(
        "stranger",
        [parts_of(b"abcdefg", 3, term=2)[1], parts_of(b"abcdefg", 3)[2], parts_of(b"abcdef", 3)[1]],
    )
    def test_parts_that_do_not_belong_together_make_nothing(self, stranger: FullStatePart) -> None:
        full_states = FullStateLog()
        full_states.add(parts_of(b"abcdefg", 3)[0], 100)
        assert full_states.add(stranger, 100) is None
        assert full_states.complete_index == -1

    def test_a_new_record_begins_over_an_unfinished_one(self) -> None:
        full_states = FullStateLog()
        full_states.add(parts_of(b"abcdefg", 3)[0], 100)
        assert full_states.add(parts_of(b"new", 3, applied_index=12)[0], 200) == FullState(Index(12), b"new")
        assert full_states.started_pos == 200

    @pytest.mark.parametrize(
        ("end_pos", "due"), [(999, False), (1000, True), (1999, True)], ids=["same file", "next", "later"]
    )
    def test_the_first_is_due_when_a_second_file_has_begun(self, end_pos: int, due: bool) -> None:
        assert FullStateLog().is_due(end_pos, 1000) is due

    @pytest.mark.parametrize(("end_pos", "due"), [(2100, False), (2899, False), (2900, True)])
    def test_the_next_is_due_after_a_file_and_four_times_its_size(self, end_pos: int, due: bool) -> None:
        full_states = FullStateLog()
        full_states.add(parts_of(bytes(450), 450)[0], 1100)
        assert full_states.is_due(end_pos, 1000) is due

    def test_none_is_due_while_one_is_in_progress(self) -> None:
        full_states = FullStateLog()
        full_states.add(parts_of(b"abcdefg", 3)[0], 100)
        assert not full_states.is_due(10_000, 1000)

    def test_what_is_in_progress_survives_a_checkpoint(self) -> None:
        full_states, restored = FullStateLog(), FullStateLog()
        parts = parts_of(b"abcdefg", 3)
        full_states.add(parts[0], 100)
        full_states.add(parts[1], 150)
        restored.unpack(msgpack.unpackb(msgpack.packb(full_states.pack())))
        assert restored.add(parts[2], 200) == FullState(Index(9), b"abcdefg")


class TestStateMachineWithoutTheBeginning:
    """A member whose log begins at index 20: what came before is in the full-state record alone."""

    def changes(self, *topics: str) -> bytes:
        return pack_changes([pack_change(PutTopicConfig(TopicConfig(topic))) for topic in topics])

    def machine(self) -> StateMachine:
        machine = StateMachine(is_whole=False)
        machine.apply(self.changes("D"), Index(20), 0, 2000)
        machine.apply(self.changes("E"), Index(21), 0, 2100)
        return machine

    def full_state(self, *topics: str, rows: list[QueueRow] | None = None) -> list[bytes]:
        whole = StateMachine(is_whole=True)
        for topic in topics:
            whole.apply(self.changes(topic), Index(0), 0, 1000)
        data = msgpack.packb([whole.tables.pack(), rows or []])
        return [pack_full_state_part(part) for part in parts_of(data, 40, applied_index=20)]

    def test_it_takes_the_record_and_applies_what_came_after_its_index(self) -> None:
        machine = self.machine()
        assert not machine.is_whole
        rows: list[QueueRow] = [(b"A", 0, 5, 9)]
        given: list[QueueRow] = []
        for number, body in enumerate(self.full_state("A", "B", "D", rows=rows)):
            machine.apply(self.changes(f"F{number}"), Index(30 + 2 * number), 0, 3000)
            given += machine.apply(body, Index(31 + 2 * number), 0, 3000)
        machine.apply(self.changes("G"), Index(90), 0, 4000)
        topics = list(machine.tables.topic_config_table.configs)
        assert topics[:5] == ["A", "B", "D", "E", "F0"]
        assert topics[-1] == "G"
        assert given == rows
        assert machine.is_whole

    def test_a_record_of_a_time_before_the_log_begins_would_leave_a_gap(self) -> None:
        machine = StateMachine(is_whole=False, before_begin_index=Index(21))
        for number, body in enumerate(self.full_state("A")):  # of index 20
            machine.apply(body, Index(31 + number), 0, 3000)
        assert not machine.is_whole

    def test_a_whole_one_leaves_the_record_alone(self) -> None:
        machine = StateMachine(is_whole=True)
        machine.apply(self.changes("A"), Index(1), 0, 1000)
        for body in self.full_state("Other", rows=[(b"A", 0, 5, 9)]):
            assert machine.apply(body, Index(31), 0, 3000) == []
        assert list(machine.tables.topic_config_table.configs) == ["A"]

    def test_a_record_that_cannot_be_read_is_an_error(self) -> None:
        machine = self.machine()
        part = FullStatePart(Term(1), Index(20), 0, 1, b"\xc1")
        with pytest.raises(StateRecordError):
            machine.apply(pack_full_state_part(part), Index(31), 0, 3000)


def full_states_in(member: StoreMember) -> list[FullState]:
    """Complete records in the log of a member, read entry by entry."""
    full_states = FullStateLog()
    found: list[FullState] = []
    log = member.replica.log
    for batch in log.batches_from(log.ledger_begin_index, log.ledger_end_index, 1 << 20):
        for header, body in walk(batch.buffer, batch.pos):
            if header.kind == EntryKind.NO_OP:
                full_states.void()
            if header.kind == EntryKind.STATE:
                record = unpack_record(decode_message(body).body)
                if isinstance(record, FullStatePart):
                    full_state = full_states.add(record, header.pos)
                    found += [full_state] if full_state else []
    return found


def fill(group: StoreGroup, member: StoreMember, size: int) -> None:
    for _ in range(size // 10_000):
        member.put(message(body=bytes(10_000)))
        group.run_for(30)


@pytest.mark.slow
def test_a_leader_writes_a_full_state_per_data_file_in_parts(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    for number in range(100):
        config = TopicConfig(f"T{number}", attributes={"a": "x" * 200})
        leader.store.propose(PutTopicConfig(config), None, group.now_ms)
    leader.store.propose(CommitOffset("g", "T1", 0, 7), None, group.now_ms)
    fill(group, leader, 4 * DATA_FILE_SIZE)
    full_states = full_states_in(leader)
    assert 3 <= len(full_states) <= 5
    assert len(full_states[-1].data) > leader.store.config.state_record_size_max, "several parts"
    group.settle()
    newest = StateMachine(is_whole=False)
    for part in split_full_state(full_states[-1].data, Term(1), full_states[-1].applied_index, 1000):
        rows = newest.apply(pack_full_state_part(part), Index(0), 0, 0)
    assert newest.tables.pack() == leader.store._state.tables.pack()
    ((topic, queue_id, _, max_offset),) = rows
    assert (topic, queue_id) == (b"T", 0)
    assert 0 < max_offset <= leader.store.reads.max_offset("T", 0)
    packed = [member.store._state.full_state_log.pack() for member in group.members.values()]
    assert packed[0] == packed[1] == packed[2]


@pytest.mark.slow
def test_a_new_leader_starts_a_record_of_its_own(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    for number in range(60):
        config = TopicConfig(f"T{number}", attributes={"a": "x" * 500})
        leader.store.propose(PutTopicConfig(config), None, group.now_ms)
    group.settle()
    while not leader.store._state.full_state_log.in_progress:
        leader.put(message(body=bytes(2000)))
        group.run_for(10)
    leader.crash()
    leader = group.lead()
    fill(group, leader, 2 * DATA_FILE_SIZE)
    assert full_states_in(leader)
