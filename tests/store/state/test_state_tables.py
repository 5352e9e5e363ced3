"""Replicated tables: changes go through the log, and every member that has applied it holds the same."""

from pathlib import Path

import msgpack
import pytest
from store_group import StoreGroup, message

from store.errors import StateRecordError
from store.state.state_proposals import ProposeStatus
from store.state.state_record import (
    FullStatePart,
    pack_change,
    pack_changes,
    pack_full_state_part,
    unpack_record,
)
from store.state.state_tables import StateTables
from store.state.table import StateChange
from store.state.table_configs import DataVersion, SubscriptionGroupConfig, TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset, EndReset, ResetOffset
from store.state.tables.subscription_group_table import (
    DeleteSubscriptionGroup,
    PutForbidden,
    PutSubscriptionGroup,
)
from store.state.tables.topic_config_table import DeleteTopic, PutTopicConfig

CHANGES: list[StateChange] = [
    PutTopicConfig(TopicConfig("T", 4, 4, 6, "SINGLE_TAG", 0, True, {"+a": "b"})),
    DeleteTopic("T"),
    PutSubscriptionGroup(SubscriptionGroupConfig("g", consume_enable=False, attributes={"x": "y"})),
    DeleteSubscriptionGroup("g", True),
    CommitOffset("g", "T", 3, 1 << 40),
    PutForbidden("g", "T", 4),
    ResetOffset("g", "T", 3, 7),
    EndReset("g", "T", 3, 7),
]


class TestRecords:
    def test_changes_read_back_in_order(self) -> None:
        assert unpack_record(pack_changes([pack_change(change) for change in CHANGES])) == CHANGES

    def test_an_end_of_a_reset_that_does_not_say_which_is_read(self) -> None:
        kind, *values, _ = msgpack.unpackb(pack_change(EndReset("g", "T", 3, 7)))
        first_shape = msgpack.packb([kind, *values])
        assert unpack_record(pack_changes([first_shape])) == [EndReset("g", "T", 3)]

    def test_a_part_of_a_full_state_reads_back(self) -> None:
        part = FullStatePart(3, 17, 0, 2, b"data")  # type: ignore[arg-type]
        assert unpack_record(pack_full_state_part(part)) == part

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"\xc1",
            msgpack.packb(7),
            msgpack.packb([2, 1, []]),
            msgpack.packb([1, 9, []]),
            msgpack.packb([1, 1]),
            msgpack.packb([1, 1, [[99, "new"]]]),
            msgpack.packb([1, 1, [[1, ["T", 1, 1, 6, "S", 0, False, {}, "one field too many"]]]]),
        ],
        ids=["empty", "no msgpack", "no array", "version", "type", "short", "kind", "fields"],
    )
    def test_what_this_version_does_not_know_is_refused(self, body: bytes) -> None:
        with pytest.raises(StateRecordError):
            unpack_record(body)


class TestTables:
    def test_a_data_version_grows_by_changes_alone(self) -> None:
        tables = StateTables()
        tables.apply([PutTopicConfig(TopicConfig("T"))], 100)
        tables.apply([PutTopicConfig(TopicConfig("T"))], 200)
        assert tables.topic_config_table.data_version == DataVersion(1, 100)
        tables.apply([PutTopicConfig(TopicConfig("T", perm=2))], 300)
        assert tables.topic_config_table.data_version == DataVersion(2, 300)

    def test_topics_by_group_are_those_of_each_group(self) -> None:
        tables = StateTables()
        pairs = [("g", "T"), ("h", "U"), ("g", "%RETRY%g"), ("h", "T"), ("i", "U")]
        tables.apply([CommitOffset(group, topic, 0, 1) for group, topic in pairs], 1)
        offsets = tables.consumer_offset_table
        assert offsets.topics_by_group() == {group: offsets.topics_of(group) for group in ("g", "h", "i")}

    def test_deleting_a_topic_takes_its_offsets_along_and_no_others(self) -> None:
        tables = StateTables()
        tables.apply([CommitOffset("g", "T", 0, 5), CommitOffset("g", "U", 0, 6), DeleteTopic("T")], 1)
        offsets = tables.consumer_offset_table
        assert (offsets.query("g", "T", 0), offsets.query("g", "U", 0)) == (-1, 6)

    @pytest.mark.parametrize("clean_offset", [True, False])
    def test_deleting_a_group_takes_its_offsets_along_if_asked(self, clean_offset: bool) -> None:
        tables = StateTables()
        tables.apply([CommitOffset("g", "T", 0, 5), DeleteSubscriptionGroup("g", clean_offset)], 1)
        assert tables.consumer_offset_table.query("g", "T", 0) == (-1 if clean_offset else 5)

    def test_commits_to_a_queue_that_was_reset_count_again_once_the_consumer_knows(self) -> None:
        tables = StateTables()
        tables.apply(
            [CommitOffset("g", "T", 0, 9), ResetOffset("g", "T", 0, 3), CommitOffset("g", "T", 0, 9)], 1
        )
        offsets = tables.consumer_offset_table
        assert (offsets.query("g", "T", 0), offsets.reset_offset("g", "T", 0)) == (3, 3)
        assert offsets.reset_offset("g", "T", 1) is None
        other = StateTables()
        other.unpack(msgpack.unpackb(msgpack.packb(tables.pack()), strict_map_key=False))
        assert other.consumer_offset_table.resets == offsets.resets == {"T@g": {0}}
        tables.apply([EndReset("g", "T", 0, 3), CommitOffset("g", "T", 0, 9)], 2)
        assert (offsets.query("g", "T", 0), offsets.resets) == (9, {})

    @pytest.mark.parametrize("told", [3, None])
    def test_a_reset_that_came_before_the_consumer_was_told_of_the_one_before_it_stands(
        self, told: int | None
    ) -> None:
        tables = StateTables()
        resets = [ResetOffset("g", "T", 0, 3), ResetOffset("g", "T", 0, 5)]
        tables.apply([*resets, EndReset("g", "T", 0, told)], 1)
        left = tables.consumer_offset_table.reset_offset("g", "T", 0)
        assert left == (None if told is None else 5)

    @pytest.mark.parametrize("change", [DeleteTopic("T"), DeleteSubscriptionGroup("g", True)])
    def test_marks_of_resets_go_with_their_offsets(self, change: StateChange) -> None:
        tables = StateTables()
        tables.apply([ResetOffset("g", "T", 0, 3), change], 1)
        assert tables.consumer_offset_table.resets == {}

    def test_what_is_forbidden_is_kept_until_it_is_allowed_or_its_group_goes(self) -> None:
        tables, other = StateTables(), StateTables()
        tables.apply([PutForbidden("g", "T", 4), PutForbidden("h", "T", 4), PutForbidden("h", "T", 0)], 1)
        other.unpack(msgpack.unpackb(msgpack.packb(tables.pack()), strict_map_key=False))
        assert other.subscription_group_table.forbidden == {"g": {"T": 4}}
        tables.apply([DeleteSubscriptionGroup("g")], 2)
        assert tables.subscription_group_table.forbidden == {}

    @pytest.mark.parametrize("missing", [1, 2])
    def test_states_written_by_earlier_versions_read_back(self, missing: int) -> None:
        tables, other = StateTables(), StateTables()
        tables.apply([CHANGES[0], CHANGES[2], CHANGES[4]], 77)
        other.unpack(tables.pack()[:-missing])
        assert other.pack() == tables.pack()

    def test_packed_tables_read_back_equal(self) -> None:
        tables, other = StateTables(), StateTables()
        tables.apply([CHANGES[0], CHANGES[2], CHANGES[4]], 77)
        other.unpack(msgpack.unpackb(msgpack.packb(tables.pack()), strict_map_key=False))
        assert other.pack() == tables.pack()
        assert other.topic_config_table.get("T") == tables.topic_config_table.get("T") is not None


class Proposed:
    """Proposes, and collects the answers."""

    def __init__(self, group: StoreGroup, *changes: StateChange, member: str = "n0") -> None:
        self.answers: list[ProposeStatus] = []
        for change in changes:
            group.members[member].store.propose(change, self.answers.append, group.now_ms)


@pytest.fixture
def group(tmp_path: Path) -> StoreGroup:
    group = StoreGroup(tmp_path)
    group.start()
    return group


def test_a_proposal_is_answered_once_it_is_applied_here(group: StoreGroup) -> None:
    store = group.lead().store
    proposed = Proposed(group, PutTopicConfig(TopicConfig("T")))
    assert (proposed.answers, store.tables.topic_config_table.get("T")) == ([], None)
    group.settle()
    assert proposed.answers == [ProposeStatus.APPLIED]
    assert store.tables.topic_config_table.get("T") == TopicConfig("T")


def test_what_is_proposed_while_a_record_is_under_way_becomes_one_record(group: StoreGroup) -> None:
    leader = group.lead()
    before = leader.replica.log.ledger_end_index
    proposed = Proposed(group, *[PutTopicConfig(TopicConfig(f"T{number}")) for number in range(50)])
    group.settle()
    assert proposed.answers == [ProposeStatus.APPLIED] * 50
    assert leader.replica.log.ledger_end_index == before + 2
    assert list(leader.store.tables.topic_config_table.configs) == [f"T{number}" for number in range(50)]


def test_records_stay_below_their_limit(group: StoreGroup) -> None:
    leader = group.lead()
    limit = leader.store.config.state_record_size_max
    attributes = {"a": "x" * 1000}
    proposed = Proposed(
        group, *[PutTopicConfig(TopicConfig(f"T{number}", attributes=attributes)) for number in range(30)]
    )
    first = leader.replica.log.ledger_end_index
    group.settle()
    assert proposed.answers == [ProposeStatus.APPLIED] * 30
    log = leader.replica.log
    sizes = [log.end_pos_at(index) - log.pos_at(index) - 48 for index in range(first, log.ledger_end_index)]  # type: ignore[arg-type]
    assert max(sizes) <= limit
    assert max(sizes) > limit // 2


def test_a_change_too_large_for_any_record_is_refused(group: StoreGroup) -> None:
    group.lead()
    proposed = Proposed(group, PutTopicConfig(TopicConfig("T", attributes={"a": "x" * 10_000})))
    assert proposed.answers == [ProposeStatus.REFUSED]


def test_one_way_commits_of_a_queue_coalesce_and_the_last_one_wins(group: StoreGroup) -> None:
    leader = group.lead()
    before = leader.replica.log.ledger_end_index
    for offset in range(100):
        leader.store.propose(CommitOffset("g", "T", 0, offset), None, group.now_ms)
    assert leader.store.reads.query_offset("g", "T", 0) == 99, "a client reads its own commit"
    assert leader.store.tables.consumer_offset_table.query("g", "T", 0) == -1
    group.run_for(100)
    assert leader.store.reads.query_offset("g", "T", 0) == 99
    assert leader.store.tables.consumer_offset_table.query("g", "T", 0) == 99
    assert leader.replica.log.ledger_end_index == before + 1


def test_a_synchronous_commit_is_not_overtaken_by_an_earlier_one_way_one(group: StoreGroup) -> None:
    leader = group.lead()
    Proposed(group, PutTopicConfig(TopicConfig("T")))  # so that what follows waits
    leader.store.propose(CommitOffset("g", "T", 0, 5), None, group.now_ms)
    proposed = Proposed(group, CommitOffset("g", "T", 0, 3))
    group.run_for(100)
    assert proposed.answers == [ProposeStatus.APPLIED]
    assert leader.store.reads.query_offset("g", "T", 0) == 3


def test_who_does_not_serve_says_so(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    follower = next(name for name in group.members if name != leader.id)
    assert Proposed(group, PutTopicConfig(TopicConfig("T")), member=follower).answers == [
        ProposeStatus.NOT_LEADER
    ]


def test_all_members_hold_equal_tables_and_a_new_leader_goes_on(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    Proposed(group, *CHANGES[2:], PutTopicConfig(TopicConfig("T")), member=leader.id)
    group.settle()
    leader.crash()
    new_leader = group.lead()
    Proposed(group, PutTopicConfig(TopicConfig("U")), member=new_leader.id)
    group.start(leader.id)
    group.settle()
    states = [member.store._state.tables.pack() for member in group.members.values()]
    assert states[0] == states[1] == states[2]
    assert list(new_leader.store.tables.topic_config_table.configs) == ["T", "U"]


def test_proposals_end_with_the_leadership(tmp_path: Path) -> None:
    group = StoreGroup(tmp_path, 3)
    group.start()
    leader = group.lead()
    group.cut_off.add(leader.id)
    proposed = Proposed(
        group, PutTopicConfig(TopicConfig("T")), PutTopicConfig(TopicConfig("U")), member=leader.id
    )
    put = leader.put(message())
    group.run_until(lambda: not leader.store.serving)
    assert proposed.answers == [ProposeStatus.UNKNOWN, ProposeStatus.NOT_LEADER]
    assert [status.value for status in put.statuses] == ["UNKNOWN"]
