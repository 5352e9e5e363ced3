"""fastjson text: plain JSON, bare number keys, bean keys, and what is neither."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remoting.errors import RemotingBodyError
from remoting.fastjson import DEPTH_MAX, INT_KEY_MAX, dumps_fastjson, loads_fastjson

CASES = [
    (b'{"a":1,"b":[true,false,null,1.5,"x"]}', {"a": 1, "b": [True, False, None, 1.5, "x"]}),
    (b'{0:"127.0.0.1:1",10:"h:2"}', {0: "127.0.0.1:1", 10: "h:2"}),
    (b'{-1:{}," ":[]}', {-1: {}, " ": []}),
    (
        b'{"t":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}',
        {"t": {(("brokerName", "b"), ("queueId", 1), ("topic", "T")): 7}},
    ),
    (
        b'{1:{{"a":{"b":"{1:2}"}}:[{2:"\xe6\xa0\x87\\"\\u0001"}]}}',
        {1: {(("a", (("b", "{1:2}"),)),): [{2: '标"\x01'}]}},
    ),
]


@pytest.mark.parametrize(("text", "value"), CASES)
def test_texts_are_read_to_their_values(text: bytes, value: object) -> None:
    assert loads_fastjson(text) == value


@pytest.mark.parametrize(("text", "value"), CASES[:4])
def test_values_are_written_to_their_texts(text: bytes, value: object) -> None:
    assert dumps_fastjson(value) == text


def test_blanks_are_allowed_between_bare_keys() -> None:
    assert loads_fastjson(b' {\n\t1 : [ 2 , 3 ] , "a" : { } }\r\n') == {1: [2, 3], "a": {}}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"{0:1",
        b"{0:1}}",
        b"{0:}",
        b"{0 1}",
        b"{[1]:2}",
        b'{0:"open}',
        b"{0:nope}",
        b"{0:" + b"9" * 5_000 + b"}",
        b"{0:" * 100_000,
        b"{0:" + b"[" * (DEPTH_MAX + 1) + b"]" * (DEPTH_MAX + 1) + b"}",
    ],
)
def test_what_is_not_fastjson_is_a_body_error(text: bytes) -> None:
    with pytest.raises(RemotingBodyError):
        loads_fastjson(text)


def test_a_loose_body_of_too_many_values_is_refused() -> None:
    assert loads_fastjson(b"{1:[2,3]}", values_max=5) == {1: [2, 3]}
    with pytest.raises(RemotingBodyError, match="more than 5 values"):
        loads_fastjson(b"{1:[2,3,4]}", values_max=5)
    assert loads_fastjson(b'{"1":[2,3,4]}', values_max=5) == {
        "1": [2, 3, 4]
    }  # plain JSON is read at another speed


def test_no_key_is_a_large_number_whose_hash_its_sender_knows() -> None:
    """The hash of a number is the number modulo 2^61 - 1: 40,000 keys of one hash took half a minute."""
    collides = 17 * ((1 << 61) - 1)
    assert loads_fastjson(b"{65535:1,65536:2,1.5:3,true:4}") == {65535: 1, "65536": 2, "1.5": 3, "true": 4}
    for key in (b"%d" % collides, b'{"queueId":%d}' % collides):
        with pytest.raises(RemotingBodyError, match="64"):
            loads_fastjson(b"{" + key + b":1}")


def test_many_commas_are_passed_over() -> None:
    assert loads_fastjson(b"{a:[,,1,/* */,2,],,b:3,}") == {"a": [1, 2], "b": 3}
    assert loads_fastjson(b"[/* a * b **/ , /**/ 1 //c\n , // d\n/* */,2]") == [1, 2]


def test_a_value_without_json_form_is_a_body_error() -> None:
    with pytest.raises(RemotingBodyError):
        dumps_fastjson({"a": object()})


SCALARS = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.text()
KEYS = st.integers(-INT_KEY_MAX, INT_KEY_MAX) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(VALUES)
def test_what_is_written_reads_back(value: object) -> None:
    assert loads_fastjson(dumps_fastjson(value)) == value
