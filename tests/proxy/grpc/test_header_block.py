"""Header blocks: as another encoder writes them, and as nobody should."""

from __future__ import annotations

import contextlib

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from proxy.grpc.header_block import HeaderBlockError, HeaderDecoder, MalformedFieldError, encode_fields

NAMES = st.sampled_from([":path", ":status", "content-type", "x-mq-client-id", "te", "k"]) | st.text(
    "abcxyz09-_.", min_size=1, max_size=9
)
VALUES = st.sampled_from(["", "200", "/", "a" * 300]) | st.text(
    st.characters(min_codepoint=32, max_codepoint=1000), max_size=20
)
BLOCKS = st.lists(st.lists(st.tuples(NAMES, VALUES), max_size=6), max_size=5)


@given(BLOCKS, st.booleans(), st.lists(st.sampled_from([0, 40, 100, 4096]), max_size=3))
def test_fields_are_read_as_another_encoder_wrote_them(
    blocks: list[list[tuple[str, str]]], huffman: bool, sizes: list[int]
) -> None:
    """Block after block over the same table, whose size changes between them."""
    encoder, decoder = Encoder(), HeaderDecoder(100_000)
    for number, fields in enumerate(blocks):
        if sizes:
            encoder.header_table_size = sizes[number % len(sizes)]
        assert decoder.decode(encoder.encode(fields, huffman=huffman)) == fields


@given(st.lists(st.tuples(NAMES, VALUES), max_size=12))
def test_another_decoder_reads_what_we_write(fields: list[tuple[str, str]]) -> None:
    raw = [(name.encode(), value.encode()) for name, value in fields]
    decoded = Decoder(1 << 20).decode(encode_fields(raw), raw=True)
    assert [tuple(field) for field in decoded] == raw


@given(st.binary(max_size=60))
def test_any_bytes_are_fields_or_an_error(block: bytes) -> None:
    with contextlib.suppress(HeaderBlockError, MalformedFieldError):
        HeaderDecoder(10_000).decode(block)


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # index 62, of an empty table
        b"\xff\xff\xff\xff\xff\xff\xff\x01",  # an endless number
        b"\x00\x05abc",
        b"\x00\x01a",  # no value
        b"\x3f\xe2\x1f",  # a table of 4,097 bytes
        b"\x82\x20",  # the size of the table after a field
        b"\x00\x81\x00\x00",  # no Huffman code
    ],
)
def test_what_is_no_header_block_is_refused(block: bytes) -> None:
    with pytest.raises(HeaderBlockError):
        HeaderDecoder(10_000).decode(block)


@pytest.mark.parametrize(
    "block",
    [b"\x00\x01A\x01x", b"\x00\x00\x01x", b"\x00\x03a b\x00", b"\x00\x01a\x03x\ny", b"\x00\x01a\x02\r\n"],
)
def test_a_malformed_field_is_refused(block: bytes) -> None:
    with pytest.raises(MalformedFieldError):
        HeaderDecoder(10_000).decode(block)


def test_a_short_block_cannot_become_a_long_list() -> None:
    """One large entry of the table, and then a byte for each time that it is meant."""
    decoder = HeaderDecoder(32_768)
    decoder.decode(b"\x40\x01a\x7f\xc0\x1e" + b"x" * (0x7F + 0x40 + (0x1E << 7)))
    with pytest.raises(HeaderBlockError, match="more than 32768 bytes"):
        decoder.decode(b"\xbe" * 100)
