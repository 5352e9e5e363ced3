"""Header fields of gRPC requests and responses: what a request asks for, and how a status is told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from proxy.grpc.call import GrpcStatus

Fields = list[tuple[bytes, bytes]]

RESPONSE_HEADERS: Fields = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK_TRAILERS: Fields = [(b"grpc-status", b"0")]

_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PSEUDO_HEADERS = frozenset({":method", ":scheme", ":path", ":authority"})
# Fields about a connection of HTTP/1, which HTTP/2 forbids.
_CONNECTION_FIELDS = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)
# What is HTTP's or gRPC's own. Handlers see the client's fields alone.
_NOT_METADATA = _CONNECTION_FIELDS | {
    "te",
    "content-type",
    "content-length",
    "grpc-timeout",
    "grpc-encoding",
    "grpc-accept-encoding",
}
# Some clients end the connection at 8 KiB of header fields, and a character may become twelve.
_MESSAGE_LENGTH_MAX = 512
_SIZE_DIGITS_MAX = 18
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}


class BadRequest(Exception):
    """The request is not gRPC. `http_status` and the text tell a program that does not speak it, or a person."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(text)
        self.http_status = http_status


class MalformedRequestError(Exception):
    """The header fields are no request of HTTP/2 (RFC 9113, section 8.3)."""


@dataclass(slots=True)
class Request:
    """`refusal`: why it is not served, although it is a sound request of HTTP/2."""

    metadata: dict[str, str]
    path: str = ""
    timeout_s: float | None = None
    content_type: str = ""
    content_size: int | None = None  # as the client announces it
    refusal: BadRequest | None = None


def read_request(fields: Iterable[tuple[str, str]], hidden: Collection[str] = ()) -> Request:
    """Read the header fields of a request. Raises MalformedRequestError.

    Metadata with a name in `hidden` is left out.
    """
    pseudo: dict[str, str] = {}
    metadata: dict[str, str] = {}
    request = Request(metadata)
    may_be_pseudo = True  # pseudo-headers come first
    for name, value in fields:
        if name[0] == ":":
            if not may_be_pseudo or name not in _PSEUDO_HEADERS or name in pseudo:
                raise MalformedRequestError(f"{name} is no field of a request, comes twice, or after others")
            pseudo[name] = value
            continue
        may_be_pseudo = False
        if name in _NOT_METADATA:
            _read_field(request, name, value)
        elif name not in hidden:
            metadata[name] = f"{metadata[name]},{value}" if name in metadata else value
    request.path = pseudo.get(":path", "")
    method = pseudo.get(":method", "")
    if not request.path or not method or not pseudo.get(":scheme"):
        raise MalformedRequestError("method, path or scheme is missing")
    if method != "POST":
        request.refusal = BadRequest(
            405, f"gRPC is served here: the method is {method}, and only POST is taken"
        )
    elif not request.content_type.startswith("application/grpc"):
        request.refusal = BadRequest(
            415,
            f"gRPC is served here: the content-type is {request.content_type!r}, and application/grpc is taken",
        )
    return request


def _read_field(request: Request, name: str, value: str) -> None:
    if name == "grpc-timeout":
        try:
            request.timeout_s = parse_timeout(value)
        except BadRequest as error:
            request.refusal = error
    elif name == "content-type":
        request.content_type = value
    elif name == "content-length":
        if not (value.isascii() and value.isdigit() and len(value) <= _SIZE_DIGITS_MAX):
            raise MalformedRequestError(f"content-length is {value!r:.40}")
        request.content_size = int(value)
    elif name in _CONNECTION_FIELDS or (name == "te" and value != "trailers"):
        raise MalformedRequestError(f"{name} is about a connection of HTTP/1")


def parse_timeout(text: str) -> float:
    """Return the seconds of a grpc-timeout. Raises BadRequest."""
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise BadRequest(
            400, f"grpc-timeout is {text!r}: a number of up to 8 digits and one of HMSmun is wanted"
        )
    return int(match[1]) * _SECONDS[match[2]]


def status_trailers(status: GrpcStatus, message: str) -> Fields:
    """The fields that end a call. A message is percent-encoded, as gRPC asks, and cut where it is long."""
    if status is GrpcStatus.OK and not message:
        return OK_TRAILERS
    return [
        (b"grpc-status", b"%d" % status),
        (b"grpc-message", percent_encode(message[:_MESSAGE_LENGTH_MAX])),
    ]


def percent_encode(text: str) -> bytes:
    return b"".join(
        bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in text.encode("utf-8", "replace")
    )
