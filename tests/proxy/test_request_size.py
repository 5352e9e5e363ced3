"""What a send holds besides bodies, counted before it is parsed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.messages.request_size import is_larger_besides_bodies
from proxy.protocol.definition import Message, Resource, SystemProperties
from proxy.protocol.service import SendMessageRequest


def send(*messages: Message) -> bytes:
    return SendMessageRequest(messages=messages).SerializeToString()


def test_bodies_do_not_count() -> None:
    message = Message(topic=Resource(name="T"), body=b"x" * 100_000)
    payload = send(message, message)
    assert not is_larger_besides_bodies(payload, 300)
    assert is_larger_besides_bodies(payload, 200)


@pytest.mark.parametrize(
    "large",
    [
        Message(topic=Resource(name="T" * 1000)),
        Message(system_properties=SystemProperties(keys=[""] * 500)),
        Message(user_properties={f"{number}": "" for number in range(20)}),
        Message(body=b"x", user_properties={"a": "x" * 1000}),
    ],
)
def test_all_else_counts(large: Message) -> None:
    assert is_larger_besides_bodies(send(Message(body=b"x"), large, Message(body=b"x")), 900)


def test_fields_that_nobody_knows_count() -> None:
    assert is_larger_besides_bodies(b"\x7a\xe8\x07" + b"x" * 1000, 900)  # in the request, field 15
    assert is_larger_besides_bodies(b"\x0b\x0c", 900)  # a group


def test_messages_without_anything_count() -> None:
    assert is_larger_besides_bodies(send(*[Message()] * 30), 1000)
    assert not is_larger_besides_bodies(send(*[Message()] * 20), 1000)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_request_raise_nothing(payload: bytes) -> None:
    is_larger_besides_bodies(payload, 1000)
