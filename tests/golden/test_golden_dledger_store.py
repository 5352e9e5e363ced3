"""The recorded three-node DLedger store of Java 5.5.0, entry by entry."""

from hashlib import sha1

import pytest
from golden_message import said, seen
from golden_store import DLEDGER_STORE, NODES, below, expected, store_files

from dledger.entry import (
    ENTRY_HEADER,
    ENTRY_HEADER_SIZE,
    INDEX_UNIT_SIZE,
    EntryFault,
    EntryHeader,
    RangeCorruptError,
    VerifiedRange,
    index_units_of,
    is_exact_blank,
    parse_index_units,
    verify_entries,
    walk,
)
from message.decoder import decode_message
from message.encoder import encode_again
from message.properties import encode_properties

ENTRY_COUNT = 2111


def data_files(node: str) -> list[tuple[int, bytes]]:
    return below(store_files(DLEDGER_STORE), f"{node}/dledger-{node}/data")


def entries(node: str) -> list[tuple[EntryHeader, memoryview]]:
    return [entry for start, content in data_files(node) for entry in walk(content, start)]


def verified_files(node: str) -> list[tuple[bytes, VerifiedRange]]:
    """Each data file's written part, verified as one log."""
    ranges: list[tuple[bytes, VerifiedRange]] = []
    first_index, chain, term = 0, 0, -1
    for start, content in data_files(node):
        size = sum(header.size for header, _ in walk(content, start))
        verified = verify_entries(
            content[:size],
            first_index=first_index,
            first_pos=start,
            prev_chain=chain,
            prev_term=term,
            accept_zero_crc=True,
        )
        ranges.append((content, verified))
        first_index, chain, term = verified.last_index + 1, verified.chain, verified.last_term
    return ranges


@pytest.mark.parametrize("node", NODES)
def test_every_entry_is_what_dledger_says_it_is(node: str) -> None:
    lines = expected(f"{DLEDGER_STORE}.{node}")["entry"]
    read = entries(node)
    assert len(read) == len(lines) == ENTRY_COUNT
    for (header, body), line in zip(read, lines, strict=True):
        assert (header.index, header.term, header.pos, header.size, header.magic) == (
            line["index"],
            line["term"],
            line["pos"],
            line["size"],
            line["magic"],
        )
        assert (header.kind, header.chain_crc, header.body_crc) == (
            line["channel"],
            line["chainCrc"],
            line["bodyCrc"],
        )
        assert (len(body), sha1(body).hexdigest()) == (line["body_len"], line["body_sha1"])
        message = seen(decode_message(body))
        assert message == said(line["message"], message)


@pytest.mark.parametrize("node", NODES)
def test_every_entry_is_written_again_to_the_same_bytes(node: str) -> None:
    for header, body in entries(node):
        message = decode_message(body)
        properties = encode_properties(message.properties)
        assert encode_again(message, message.topic.encode(), message.queue_id, properties) == body
        values = (header.magic, header.size, header.index, header.term, header.pos)
        crcs = (header.kind, header.chain_crc, header.body_crc, header.body_length)
        packed = ENTRY_HEADER.pack(*values, *crcs)
        start, content = next(file for file in reversed(data_files(node)) if file[0] <= header.pos)
        at = header.pos - start
        assert content[at : at + ENTRY_HEADER_SIZE] == packed


@pytest.mark.parametrize("node", NODES)
def test_a_java_log_verifies_where_zero_crcs_are_accepted(node: str) -> None:
    ledger = expected(f"{DLEDGER_STORE}.{node}")["ledger"][0]
    ranges = [verified for _, verified in verified_files(node)]
    assert sum(verified.count for verified in ranges) == ENTRY_COUNT
    assert ranges[-1].last_index == ledger["ledgerEndIndex"]
    assert ranges[-1].last_term == ledger["ledgerEndTerm"]
    assert ranges[-1].next_pos == ledger["writePos"]
    terms = [term for verified in ranges for term in verified.terms]
    spans = expected(f"{DLEDGER_STORE}.{node}")["terms"][0]["terms"]
    assert [
        [term, terms.index(term), len(terms) - 1 - terms[::-1].index(term)] for term in (1, 2, 3)
    ] == spans


def test_the_three_replicas_have_one_chain() -> None:
    chains = {verified_files(node)[-1][1].chain for node in NODES}
    assert len(chains) == 1
    assert chains != {0}


def test_a_java_log_is_damage_where_crcs_are_demanded() -> None:
    start, content = data_files("n0")[0]
    with pytest.raises(RangeCorruptError) as caught:
        verify_entries(content, first_index=0, first_pos=start, prev_chain=0)
    assert (caught.value.kind, caught.value.index, caught.value.pos) == (EntryFault.BODY_CRC, 0, 0)
    assert caught.value.verified.count == 0


@pytest.mark.parametrize("node", NODES)
def test_full_data_files_end_in_an_exact_blank(node: str) -> None:
    files = verified_files(node)
    assert len(files) == 3
    for content, verified in files[:-1]:
        assert is_exact_blank(content[verified.size :])
    content, verified = files[-1]
    assert not is_exact_blank(content[verified.size :])


@pytest.mark.parametrize("node", NODES)
def test_index_units_are_those_that_dledger_wrote(node: str) -> None:
    index_file = store_files(DLEDGER_STORE)[f"{node}/dledger-{node}/index/{0:020d}"]
    units = b"".join(index_units_of(verified) for _, verified in verified_files(node))
    assert len(units) == ENTRY_COUNT * INDEX_UNIT_SIZE
    assert index_file[: len(units)] == units
    parsed = parse_index_units(index_file)
    assert len(parsed) == ENTRY_COUNT
    lines = expected(f"{DLEDGER_STORE}.{node}")["entry"]
    assert [(unit.index, unit.pos, unit.size) for unit in parsed] == [
        (line["index"], line["index_pos"], line["index_size"]) for line in lines
    ]
