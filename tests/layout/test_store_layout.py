"""Layouts of the store's derived files: values come back, limits hold, damage ends a walk."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.layout.checkpoint import CHECKPOINT_SIZE, StoreCheckpoint, parse_checkpoint
from store.layout.config_json import (
    ConfigJsonError,
    data_version,
    parse_config,
    render_config,
)
from store.layout.consume_queue_unit import (
    CQ_FILE_UNITS,
    CQ_UNIT_SIZE,
    FILLER,
    is_filler,
    pack_units,
    parse_unit,
    parse_units,
)
from store.layout.index_file import (
    EMPTY_INDEX_HEADER,
    HASH_SLOT,
    INDEX_ENTRY,
    entry_offset,
    index_file_size,
    index_key_hash,
    parse_index_header,
    slot_offset,
    time_diff,
    walk_chain,
)

units = st.tuples(st.integers(0, 2**62), st.integers(1, 2**31 - 1), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(units, max_size=5))
def test_units_come_back(units: list[tuple[int, int, int]]) -> None:
    phy_offsets, sizes, tags_codes = ([unit[at] for unit in units] for at in range(3))
    packed = pack_units(phy_offsets, sizes, tags_codes)
    assert len(packed) == len(units) * CQ_UNIT_SIZE
    assert parse_units(packed + bytes(CQ_UNIT_SIZE)) == units
    for at, unit in enumerate(units):
        assert parse_unit(packed, at * CQ_UNIT_SIZE) == unit


def test_a_consume_queue_file_has_six_million_bytes() -> None:
    assert CQ_FILE_UNITS * CQ_UNIT_SIZE == 6_000_000


def test_a_filler_is_a_unit_of_its_own_kind() -> None:
    assert bytes(8) + b"\x7f\xff\xff\xff" + bytes(8) == FILLER
    assert [is_filler(unit) for unit in parse_units(FILLER + pack_units([0], [100], [0]))] == [True, False]


def test_an_index_file_has_its_standard_size() -> None:
    assert index_file_size() == 420_000_040


def test_an_empty_index_file_counts_from_one() -> None:
    assert EMPTY_INDEX_HEADER.index_count == 1
    assert parse_index_header(EMPTY_INDEX_HEADER.pack()) == EMPTY_INDEX_HEADER


def test_the_hash_without_absolute_value_counts_as_zero() -> None:
    assert index_key_hash("polygenelubricants") == 0


SLOTS = 7


def index_file(entries: list[tuple[int, int]], count: int | None = None) -> bytearray:
    """Entries (hash, entry before), numbered from 1, at slots of their own hashes."""
    file = bytearray(index_file_size(SLOTS, 10))
    header = EMPTY_INDEX_HEADER.pack()[:-4] + HASH_SLOT.pack(len(entries) + 1 if count is None else count)
    file[: len(header)] = header
    for number, (key_hash, previous) in enumerate(entries, 1):
        INDEX_ENTRY.pack_into(file, entry_offset(number, SLOTS), key_hash, number * 100, 0, previous)
        HASH_SLOT.pack_into(file, slot_offset(key_hash, SLOTS), number)
    return file


def test_a_chain_is_walked_newest_first_without_the_other_hashes_of_its_slot() -> None:
    file = index_file([(3, 0), (3 + SLOTS, 1), (3, 2), (4, 0)])
    assert [entry.phy_offset for entry in walk_chain(file, 3, SLOTS)] == [300, 100]
    assert [entry.phy_offset for entry in walk_chain(file, 3 + SLOTS, SLOTS)] == [200]
    assert list(walk_chain(file, 5, SLOTS)) == []


@pytest.mark.parametrize("previous", [2, 3, 99, -1])
def test_a_chain_that_leads_nowhere_ends(previous: int) -> None:
    file = index_file([(3, 0), (3, previous)])
    assert [entry.phy_offset for entry in walk_chain(file, 3, SLOTS)] == [200]


def test_an_entry_beyond_the_count_is_not_believed() -> None:
    assert list(walk_chain(index_file([(3, 0)], count=1), 3, SLOTS)) == []


@pytest.mark.parametrize(
    ("store", "begin", "seconds"), [(5999, 1000, 4), (999, 1000, 0), (1 << 50, 1, 0x7FFFFFFF), (5, 0, 0)]
)
def test_times_of_entries_are_seconds_after_the_first(store: int, begin: int, seconds: int) -> None:
    assert time_diff(store, begin) == seconds


@given(st.lists(st.integers(0, 2**62), min_size=6, max_size=6))
def test_a_checkpoint_comes_back(values: list[int]) -> None:
    checkpoint = StoreCheckpoint(*values)
    packed = checkpoint.pack()
    assert len(packed) == CHECKPOINT_SIZE
    assert packed[: 6 * 8] == struct.pack(">6q", *values)
    assert parse_checkpoint(packed) == checkpoint


@pytest.mark.parametrize(
    ("physic", "logics", "minimum"), [(5000, 9000, 2000), (9000, 4000, 1000), (2000, 9000, 0)]
)
def test_recovery_begins_three_seconds_before_the_older_of_both_times(
    physic: int, logics: int, minimum: int
) -> None:
    assert StoreCheckpoint(physic, logics).min_timestamp == minimum


names = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
tables = st.recursive(
    names | st.integers() | st.booleans() | st.none(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3)
        | st.dictionaries(st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(st.dictionaries(names, tables, max_size=4))
def test_a_config_table_comes_back(table: dict[str, object]) -> None:
    assert parse_config(render_config(table)) == table


def test_a_number_in_a_string_is_no_bare_key() -> None:
    table = {'{0:1,"2:': {0: '{3:"', 1: "4:"}}
    assert parse_config(render_config(table)) == table


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"a":', "{0x:1}"])
def test_text_that_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ConfigJsonError):
        parse_config(text)


def test_a_table_is_written_as_java_does() -> None:
    table = {"dataVersion": data_version(3, 1700000000000), "offsetTable": {"T@g": {0: 12, 1: 3}}}
    assert render_config(table) == (
        '{\n\t"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t},'
        '\n\t"offsetTable":{\n\t\t"T@g":{\n\t\t\t0:12,\n\t\t\t1:3\n\t\t}\n\t}\n}'
    )
