"""Properties as Arrow arrays are what decode_properties says, message by message."""

from hypothesis import example, given
from hypothesis import strategies as st

from message.properties import decode_properties
from pyspark_dledger.property_columns import PropertyColumns, texts

pieces = st.sampled_from(
    [
        b"KEYS",
        b"TAGS",
        b"a",
        b"b c",
        b"\x01",
        b"\x02",
        b"\x01\x02",
        "ä".encode(),
        b"\xff",
        b"KEYS\x01",
        b"\x02KEYS\x01v",
    ]
)
encodings = st.lists(pieces, max_size=9).map(b"".join)


@given(st.lists(st.none() | encodings, max_size=6))
@example([b"KEYS\x01a\x02KEYS\x01b\x02"])
@example([b"KEYS\x01a\x02KEYS\x01\x02"])
@example([None, b"", b"KEYS\x01a"])
@example([b"".join(b"%d\x01v\x02" % number for number in range(100))])
@example([b"".join(b"n%d\x01v\x02" % number for number in range(62)), b"n61\x01v\x02" * 9])
def test_columns_say_what_the_decoder_says(encoded: list[bytes | None]) -> None:
    columns = PropertyColumns(encoded)
    decoded = [None if text is None else decode_properties(text) for text in encoded]
    maps = columns.maps().to_pylist()
    assert [None if pairs is None else dict(pairs) for pairs in maps] == decoded
    assert all(pairs is None or len(dict(pairs)) == len(pairs) for pairs in maps)
    for name in ("KEYS", "TAGS", "a"):
        expected = [None if pairs is None else pairs.get(name) for pairs in decoded]
        assert columns.values_of(name).to_pylist() == expected


@given(st.lists(st.none() | st.binary(max_size=6), max_size=5))
def test_texts_have_replacement_characters_where_bytes_are_none(encoded: list[bytes | None]) -> None:
    expected = [None if text is None else text.decode("utf-8", "replace") for text in encoded]
    assert texts(encoded).to_pylist() == expected
