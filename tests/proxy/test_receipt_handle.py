"""The handle that gRPC clients get: Java's handle of a pop, and the message's commit log offset."""

import pytest
from golden_store import vectors

from message.decoder import decode_message
from message.encoder import encode_record
from message.message_id import pack_host
from message.pop_handle import PopHandle
from proxy.messages.receipt_handle import ReceiptHandle

HOST = pack_host("127.0.0.1:10911")


@pytest.mark.parametrize(
    "vector", vectors("pop_handles", "buildExtraInfo8"), ids=lambda vector: vector["topic"]
)
def test_a_handle_of_java_with_a_commit_log_offset_is_read_and_written(vector: dict[str, object]) -> None:
    text = f"{vector['output']} 4096"
    handle = ReceiptHandle.decode(text)
    assert handle.encode() == text
    assert handle.commit_log_offset == 4096
    assert list(handle.pop) == [*vector["parsed"]][:8]  # type: ignore[misc]


def test_a_handle_needs_no_commit_log_offset() -> None:
    """Clients of RocketMQ's proxy before 5.0 have such."""
    text = "100 1700000000000 60000 3 0 broker-a 2 105"
    handle = ReceiptHandle.decode(text)
    assert handle.commit_log_offset == -1
    assert handle.encode() == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "100 1700000000000 60000 3 0 broker-a 2",  # no message of the pop
        "100 1700000000000 60000 3 0 broker-a 2 99 4096",  # before the pop
        "100 1700000000000 60000 3 0 broker-a 2 9000000000000000000 4096",  # no pop reaches so far
        "100 1700000000000 60000 3 0 broker-a 2 105 -1",
        "100 1700000000000 60000 3 0 broker-a 2 105 4096 1",
        "100 1700000000000 60000 3 0 broker-a 2 105 " + "9" * 400,
    ],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"words|no number|no pop|no commit log offset"):
        ReceiptHandle.decode(text)


def test_the_handle_of_a_popped_message_says_where_it_lies() -> None:
    pop = PopHandle(6, 5, 9, 0, "1", "G", 0, 7)
    record = encode_record(
        b"T", 0, 0, 7, 4096, 0, 0, HOST, 0, HOST, 1, 0, b"x", f"POP_CK\x01{pop.encode()}\x02".encode()
    )
    assert ReceiptHandle.of(decode_message(record)) == ReceiptHandle(pop, 4096)
