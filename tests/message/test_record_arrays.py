"""Records as arrays say what record_columns says of them, or nothing at all."""

from hypothesis import given
from hypothesis import strategies as st
from test_record_columns import V4, records

from message.encoder import encode_record
from message.message_id import pack_host
from message.record_arrays import HEAD_V4, read_arrays
from message.record_columns import HEAD_COLUMNS, read_records


def assert_same(buffer: bytes, offsets: list[int], shift: int) -> bool:
    """True where the arrays say anything."""
    arrays = read_arrays(buffer, offsets, shift=shift)
    columns = read_records(buffer, offsets, shift=shift)
    if arrays is None:
        return False
    assert not columns.faults
    for name, column in HEAD_COLUMNS.items():
        assert arrays.heads[name].tolist() == getattr(columns, column), name
    assert arrays.topics(buffer) == columns.topics
    assert arrays.properties(buffer) == columns.properties
    assert arrays.body_starts.tolist() == columns.body_starts
    assert list(map(len, arrays.bodies(buffer))) == columns.body_lengths
    for topic in {topic for topic in columns.topics if topic is not None}:
        assert (
            arrays.of_topic(buffer, topic).tolist()
            == read_records(buffer, offsets, shift=shift, topic=topic).numbers
        )
    return True


def usual(number: int) -> bytes:
    host = pack_host(V4)
    topic, body = b"Topic%d" % (number % 3), b"b" * number
    return encode_record(topic, 1, 2, number, 48, 0, 5, host, 6, host, 0, 0, body, b"KEYS\1k\2")


def test_fields_are_those_of_the_record() -> None:
    assert tuple(HEAD_COLUMNS) == HEAD_V4.names


@given(st.lists(st.integers(0, 200), min_size=1, max_size=6))
def test_usual_records_are_read(numbers: list[int]) -> None:
    encoded = [usual(number) for number in numbers]
    buffer = b"".join(b"head" + record for record in encoded)
    offsets = [sum(len(record) + 4 for record in encoded[:number]) for number in range(len(encoded))]
    assert assert_same(buffer, offsets, 4)


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_whatever_is_read_is_read_alike_damage_included(encoded: list[bytes], data: st.DataObject) -> None:
    buffer = bytearray(b"".join(encoded))
    for at in data.draw(st.lists(st.integers(0, len(buffer) - 1), max_size=2)):
        buffer[at] ^= data.draw(st.integers(1, 255))
    offsets = [sum(map(len, encoded[:number])) for number in range(len(encoded))]
    assert_same(bytes(buffer), offsets, 0)
