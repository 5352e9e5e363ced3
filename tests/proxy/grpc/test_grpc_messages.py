"""Messages and header fields as bytes, without a connection."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.grpc.call import GrpcError, GrpcStatus
from proxy.grpc.messages import MessageAssembler, encode_message
from proxy.grpc.metadata import (
    BadRequest,
    MalformedRequestError,
    parse_timeout,
    percent_encode,
    read_request,
    status_trailers,
)


@given(st.lists(st.binary(max_size=40)), st.lists(st.integers(1, 12), min_size=1))
def test_messages_are_the_same_whatever_the_pieces(messages: list[bytes], sizes: list[int]) -> None:
    data = b"".join(map(encode_message, messages))
    assembler = MessageAssembler(1000)
    received, start = [], 0
    while start < len(data):
        size = sizes[start % len(sizes)]
        received += assembler.feed(data[start : start + size])
        start += size
    assert received == messages
    assert assembler.held_size == 0


def test_what_is_missing_of_a_message_is_held() -> None:
    assembler = MessageAssembler(1000)
    assert assembler.feed(encode_message(b"abc") + encode_message(b"defg")[:6]) == [b"abc"]
    assert assembler.held_size == 6
    assert assembler.feed(b"efg") == [b"defg"]


def test_a_message_above_the_limit_is_refused_by_its_prefix() -> None:
    with pytest.raises(GrpcError, match="has 11 bytes, more than the 10 that are taken") as refused:
        MessageAssembler(10).feed(encode_message(b"x" * 11)[:5])
    assert refused.value.status is GrpcStatus.RESOURCE_EXHAUSTED


def test_a_compressed_message_is_refused_with_a_sentence() -> None:
    with pytest.raises(GrpcError, match="send it uncompressed") as refused:
        MessageAssembler(1000).feed(b"\x01\0\0\0\x01x")
    assert refused.value.status is GrpcStatus.UNIMPLEMENTED


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("3S", 3.0), ("2M", 120.0), ("1H", 3600.0), ("250m", 0.25), ("7u", 7e-6), ("99999999n", 0.099999999)],
)
def test_a_timeout_is_read(text: str, seconds: float) -> None:
    assert parse_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "S", "3", "3s", "-1S", "123456789S", "1.5S", "٣S"])
def test_a_timeout_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="grpc-timeout"):
        parse_timeout(text)


def _request(*more: tuple[str, str], method: str = "POST") -> list[tuple[str, str]]:
    http = [(":method", method), (":scheme", "http"), (":path", "/a.B/C")]
    return [*http, ("content-type", "application/grpc"), *more]


def test_metadata_is_what_the_client_set() -> None:
    fields = _request(("te", "trailers"), ("x-mq-client-id", "c1"), ("k", "1"), ("k", "2"), ("d-bin", "AAE="))
    request = read_request(fields)
    assert request.path == "/a.B/C"
    assert request.metadata == {"x-mq-client-id": "c1", "k": "1,2", "d-bin": "AAE="}
    assert request.timeout_s is None
    assert request.refusal is None


def test_metadata_that_only_a_server_sets_is_left_out() -> None:
    request = read_request(_request(("x-mq-channel-id", "stolen")), hidden={"x-mq-channel-id"})
    assert request.metadata == {}


@pytest.mark.parametrize(
    ("fields", "http_status", "told"),
    [
        (_request(method="GET"), 405, "the method is GET"),
        (_request()[:3], 415, "the content-type is ''"),
        (_request(("grpc-timeout", "soon")), 400, "grpc-timeout is 'soon'"),
    ],
)
def test_a_request_that_is_not_grpc_is_told_what_is_taken(
    fields: list[tuple[str, str]], http_status: int, told: str
) -> None:
    refusal = read_request(fields).refusal
    assert refusal is not None
    assert refusal.http_status == http_status
    assert told in str(refusal)


@pytest.mark.parametrize(
    "fields",
    [
        _request()[1:],
        [*_request(), (":path", "/late")],
        [(":path", "/twice"), *_request()],
        [(":status", "200"), *_request()],
        _request(("connection", "close")),
        _request(("te", "gzip")),
        _request(("content-length", "-1")),
        _request(("content-length", "٣")),
        _request(("content-length", "9" * 5000)),
    ],
)
def test_a_request_that_http_forbids_is_malformed(fields: list[tuple[str, str]]) -> None:
    with pytest.raises(MalformedRequestError):
        read_request(fields)


def test_a_status_message_is_percent_encoded() -> None:
    assert percent_encode("50 % für\n") == b"50 %25 f%C3%BCr%0A"
    assert status_trailers(GrpcStatus.OK, "") == [(b"grpc-status", b"0")]
    (_, (_, long)) = status_trailers(GrpcStatus.INTERNAL, "\U0001f600" * 100_000)
    assert len(long) < 8 * 1024
    assert status_trailers(GrpcStatus.NOT_FOUND, "no") == [(b"grpc-status", b"5"), (b"grpc-message", b"no")]
