"""Entries: what is sealed verifies, and nothing that was changed does."""

import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dledger.entry import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    INDEX_UNIT_SIZE,
    EntryCorruptError,
    EntryFault,
    EntryKind,
    Index,
    IndexUnit,
    Pos,
    RangeCorruptError,
    Term,
    VerifiedRange,
    blank,
    chain_after,
    fill_crcs,
    index_units_of,
    is_exact_blank,
    parse_header,
    parse_index_units,
    seal_entries,
    verify_entries,
    walk,
)

BODIES = [b"first", b"", b"the third one"]


def positions_of(bodies: list[bytes], first_pos: int) -> list[int]:
    positions = [first_pos]
    for body in bodies:
        positions.append(positions[-1] + ENTRY_HEADER_SIZE + len(body))
    return positions[:-1]


def sealed(
    bodies: list[bytes] = BODIES,
    *,
    first_index: int = 7,
    first_pos: int = 1000,
    term: int = 3,
    kind: int = EntryKind.MESSAGE,
    prev_chain: int = 12345,
) -> tuple[bytes, int]:
    buffers, chain = seal_entries(
        bodies, positions_of(bodies, first_pos), first_index, term, kind, prev_chain
    )
    return b"".join(buffers), chain


def verify(buffer: bytes, prev_term: int = 3, accept_zero_crc: bool = False) -> VerifiedRange:
    return verify_entries(
        buffer,
        first_index=7,
        first_pos=1000,
        prev_chain=12345,
        prev_term=prev_term,
        accept_zero_crc=accept_zero_crc,
    )


def fault_of(buffer: bytes, prev_term: int = 3) -> RangeCorruptError:
    with pytest.raises(RangeCorruptError) as caught:
        verify(buffer, prev_term)
    return caught.value


def changed(buffer: bytes, format_: str, at: int, value: int) -> bytes:
    copy = bytearray(buffer)
    struct.pack_into(format_, copy, at, value)
    return bytes(copy)


def test_the_chain_is_the_crc_of_the_header_without_it_seeded_with_the_chain_before() -> None:
    buffer, chain = sealed([b"body"])
    header, body_crc = buffer[:48], crc32(b"body")
    assert header[40:44] == body_crc.to_bytes(4, "big")
    by_hand = crc32(header[:36] + struct.pack(">Ii", body_crc, 4), 12345)
    assert header[36:40] == by_hand.to_bytes(4, "big")
    assert chain & 0xFFFFFFFF == by_hand
    assert chain_after(header, 12345) == chain


def test_crcs_are_signed_on_all_ways_out() -> None:
    for seed in range(20):
        buffer, chain = sealed([b"x%d" % seed])
        assert -(1 << 31) <= chain < 1 << 31
        header = parse_header(buffer)
        assert header.chain_crc == chain == verify(buffer).chain == chain_after(buffer[:48], 12345)


def test_a_range_verifies_to_its_columns() -> None:
    buffer, chain = sealed()
    assert verify(buffer) == VerifiedRange(
        count=3,
        first_index=Index(7),
        last_index=Index(9),
        first_pos=Pos(1000),
        next_pos=Pos(1000 + len(buffer)),
        last_term=Term(3),
        chain=chain,
        offsets=[0, 53, 101],
        terms=[3, 3, 3],
        kinds=[0, 0, 0],
        buffer=buffer,
    )
    assert verify(buffer).size == len(buffer)


def test_nothing_verifies_to_an_empty_range_that_passes_the_chain_on() -> None:
    verified = verify_entries(b"", first_index=7, first_pos=1000, prev_chain=-5, prev_term=2)
    assert (verified.count, verified.last_index, verified.next_pos) == (0, 6, 1000)
    assert (verified.last_term, verified.chain) == (2, -5)


def test_ranges_sealed_one_after_the_other_are_one_range() -> None:
    together, chain = sealed(BODIES)
    front, front_chain = sealed(BODIES[:2])
    back, back_chain = sealed(BODIES[2:], first_index=9, first_pos=1000 + len(front), prev_chain=front_chain)
    assert (front + back, back_chain) == (together, chain)


def test_kinds_and_terms_are_kept() -> None:
    front, chain = sealed([b"a"], term=3)
    back, _ = sealed(
        [b"b"], term=5, first_index=8, first_pos=1000 + len(front), prev_chain=chain, kind=EntryKind.NO_OP
    )
    verified = verify(front + back)
    assert (verified.terms, verified.kinds, verified.last_term) == ([3, 5], [0, 1], 5)


@pytest.mark.parametrize(
    ("format_", "at", "value", "fault"),
    [
        (">i", 0, 2, EntryFault.HEADER),
        (">i", 0, 0, EntryFault.HEADER),
        (">i", 4, 60, EntryFault.SIZE),
        (">i", 44, -5, EntryFault.SIZE),
        (">q", 8, 8, EntryFault.INDEX),
        (">q", 24, 1001, EntryFault.POS),
        (">q", 16, 2, EntryFault.TERM),
        (">q", 16, 4, EntryFault.CHAIN),
        (">i", 32, 1, EntryFault.CHAIN),
        (">i", 36, 99, EntryFault.CHAIN),
        (">i", 40, 99, EntryFault.BODY_CRC),
        (">B", 48, 99, EntryFault.BODY_CRC),
    ],
)
def test_the_fault_names_the_part_that_is_wrong(format_: str, at: int, value: int, fault: EntryFault) -> None:
    error = fault_of(changed(sealed()[0], format_, at, value))
    assert (error.kind, error.index, error.pos) == (fault, 7, 1000)
    assert error.verified.count == 0
    assert fault.value in str(error)


@pytest.mark.parametrize("size", [0, 47])
def test_an_entry_smaller_than_its_header_is_a_fault_and_no_endless_loop(size: int) -> None:
    small = changed(changed(sealed()[0], ">i", 4, size), ">i", 44, size - 48)
    assert fault_of(small).kind is EntryFault.SIZE
    with pytest.raises(EntryCorruptError):
        next(walk(small, 1000))


def test_the_sound_entries_in_front_of_a_fault_are_handed_over() -> None:
    buffer, _ = sealed()
    error = fault_of(changed(buffer, ">B", len(buffer) - 1, 0))
    assert (error.kind, error.index, error.pos) == (EntryFault.BODY_CRC, 9, 1101)
    assert replace(error.verified, buffer=buffer[:101]) == verify(buffer[:101])


@pytest.mark.parametrize("size", range(102, 162))
def test_a_range_cut_within_its_last_entry_is_no_range(size: int) -> None:
    buffer, _ = sealed()
    error = fault_of(buffer[:size])
    assert error.kind is (EntryFault.HEADER if size < 149 else EntryFault.SIZE)
    assert error.verified.last_index == 8


def test_a_term_must_not_fall_below_the_one_before_the_range() -> None:
    assert fault_of(sealed()[0], prev_term=4).kind is EntryFault.TERM


def test_an_entry_after_another_prefix_breaks_the_chain() -> None:
    buffer, _ = sealed(prev_chain=54321)
    assert fault_of(buffer).kind is EntryFault.CHAIN


def without_crcs(buffer: bytes) -> bytes:
    copy = bytearray(buffer)
    for header, _ in walk(buffer, 1000):
        copy[header.pos - 1000 + 36 : header.pos - 1000 + 44] = bytes(8)
    return bytes(copy)


def test_zero_crcs_pass_only_where_they_are_accepted_and_give_the_chain_that_they_would_have() -> None:
    buffer, chain = sealed()
    java = without_crcs(buffer)
    assert fault_of(java).kind is EntryFault.BODY_CRC
    assert verify(java, accept_zero_crc=True).chain == chain


def test_where_zero_crcs_are_accepted_others_are_still_compared() -> None:
    buffer, _ = sealed()
    with pytest.raises(RangeCorruptError):
        verify(changed(buffer, ">B", 48, 99), accept_zero_crc=True)
    for at in (36, 40):
        with pytest.raises(RangeCorruptError):
            verify(changed(buffer, ">i", at, 0x5A5A5A5A), accept_zero_crc=True)


def test_crcs_are_filled_to_the_bytes_that_we_would_have_written() -> None:
    buffer, _ = sealed()
    assert fill_crcs(verify(without_crcs(buffer), accept_zero_crc=True), 12345).buffer == buffer


def test_crcs_of_which_a_power_loss_left_some_bytes_are_filled_as_well() -> None:
    buffer, _ = sealed()
    java = without_crcs(buffer)
    starts = [header.pos - 1000 for header, _ in walk(buffer, 1000)]
    for written in range(9):
        for cut in (java, buffer):  # what came before that byte is new, or what comes from it on
            torn = bytearray(java if cut is buffer else buffer)
            for start in starts:
                torn[start + 36 + written : start + 44] = cut[start + 36 + written : start + 44]
            assert fill_crcs(verify(bytes(torn), accept_zero_crc=True), 12345).buffer == buffer


bodies = st.lists(st.binary(max_size=40), min_size=1, max_size=5)


@given(
    bodies,
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.integers(0, 99),
    st.integers(-(2**31), 2**31 - 1),
)
def test_what_is_sealed_verifies(
    bodies: list[bytes], first_index: int, first_pos: int, term: int, prev_chain: int
) -> None:
    positions = positions_of(bodies, first_pos)
    buffers, chain = seal_entries(bodies, positions, first_index, term, EntryKind.STATE, prev_chain)
    buffer = b"".join(buffers)
    verified = verify_entries(
        memoryview(buffer), first_index=first_index, first_pos=first_pos, prev_chain=prev_chain
    )
    assert (verified.count, verified.chain, verified.size) == (len(bodies), chain, len(buffer))
    assert [first_pos + offset for offset in verified.offsets] == positions
    assert [bytes(body) for _, body in walk(buffer, first_pos)] == bodies


def test_each_bit_of_a_range_counts() -> None:
    buffer, _ = sealed()
    for bit in range(len(buffer) * 8):
        flipped = bytearray(buffer)
        flipped[bit // 8] ^= 1 << bit % 8
        assert fault_of(bytes(flipped)).verified.next_pos <= 1000 + bit // 8


@given(bodies, st.data())
def test_any_flipped_bit_is_found(bodies: list[bytes], data: st.DataObject) -> None:
    buffer, _ = sealed(bodies)
    bit = data.draw(st.integers(0, len(buffer) * 8 - 1))
    flipped = bytearray(buffer)
    flipped[bit // 8] ^= 1 << bit % 8
    error = fault_of(bytes(flipped))
    # The entry with the flipped bit is the one that is named.
    assert error.pos <= 1000 + bit // 8
    assert error.verified.next_pos == error.pos
    following = [pos for pos in positions_of(bodies, 1000) if pos > error.pos]
    assert not following or 1000 + bit // 8 < following[0]


@given(bodies, st.data())
def test_any_cut_leaves_a_prefix(bodies: list[bytes], data: st.DataObject) -> None:
    buffer, _ = sealed(bodies)
    end = data.draw(st.integers(0, len(buffer)))
    sound = [pos - 1000 for pos in [*positions_of(bodies, 1000), 1000 + len(buffer)] if pos - 1000 <= end][-1]
    try:
        verified = verify(buffer[:end])
    except RangeCorruptError as error:
        verified = error.verified
    assert replace(verified, buffer=buffer[:sound]) == verify(buffer[:sound])
    assert len(list(walk(buffer[:end], 1000))) == verified.count


@pytest.mark.parametrize("rest", [b"", bytes(100), blank(100), blank(8), b"\1" * 47])
def test_a_walk_ends_where_nothing_more_was_written(rest: bytes) -> None:
    buffer, _ = sealed()
    walked = list(walk(buffer + rest, 1000))
    assert [(header.index, header.pos, bytes(body)) for header, body in walked] == [
        (7, 1000, b"first"),
        (8, 1053, b""),
        (9, 1101, b"the third one"),
    ]


@pytest.mark.parametrize(
    ("format_", "at", "value", "fault"),
    [(">i", 0, 3, EntryFault.HEADER), (">i", 4, 9, EntryFault.SIZE), (">q", 24, 0, EntryFault.POS)],
)
def test_a_walk_does_not_end_in_silence_at_what_is_no_entry(
    format_: str, at: int, value: int, fault: EntryFault
) -> None:
    buffer = changed(sealed()[0], format_, 53 + at, value)
    with pytest.raises(EntryCorruptError) as caught:
        list(walk(buffer, 1000))
    assert (caught.value.kind, caught.value.index, caught.value.pos) == (fault, 8, 1053)


def test_index_units_speak_of_the_range() -> None:
    verified = verify(sealed()[0])
    units = index_units_of(verified)
    assert len(units) == 3 * INDEX_UNIT_SIZE
    assert parse_index_units(units + bytes(INDEX_UNIT_SIZE)) == [
        IndexUnit(1, Pos(1000), 53, Index(7), Term(3)),
        IndexUnit(1, Pos(1053), 48, Index(8), Term(3)),
        IndexUnit(1, Pos(1101), 61, Index(9), Term(3)),
    ]


def test_index_units_of_nothing_are_nothing() -> None:
    assert index_units_of(verify(b"")) == b""


@given(st.integers(8, 300))
def test_a_blank_is_exact_only_as_it_was_made(space_left: int) -> None:
    made = blank(space_left)
    assert len(made) == space_left
    assert is_exact_blank(made)
    assert is_exact_blank(memoryview(made))
    assert not is_exact_blank(made + b"\0")
    for at in range(space_left):
        changed_at = bytearray(made)
        changed_at[at] ^= 1
        assert not is_exact_blank(changed_at)


def test_less_than_a_blanks_header_is_no_blank() -> None:
    assert not is_exact_blank(b"")
    assert not is_exact_blank(blank(8)[:7])


def test_seven_bodies_need_seven_positions() -> None:
    with pytest.raises(ValueError, match="zip"):
        seal_entries([b""] * 7, [0] * 6, 0, 0, 0, GENESIS_CHAIN)


def test_the_header_has_48_bytes_and_its_fields_their_places() -> None:
    header = ENTRY_HEADER.pack(1, 51, 3, 2, 0, 0, 0, 0, 3)
    golden = "00000001 00000033 0000000000000003 0000000000000002 0000000000000000 00000000 00000000 00000000 00000003"
    assert header == bytes.fromhex(golden)
