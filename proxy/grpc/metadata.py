"""Header fields of gRPC requests and responses: what a request asks for, and how a status is told."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from proxy.grpc.call import GrpcStatus

Fields = list[tuple[bytes, bytes]]

RESPONSE_HEADERS: Fields = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK_TRAILERS: Fields = [(b"grpc-status", b"0")]

_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])", re.ASCII)
_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
# What is HTTP's or gRPC's own. Handlers see the client's fields alone.
_NOT_METADATA = frozenset({"te", "content-type", "grpc-timeout", "grpc-encoding", "grpc-accept-encoding"})
_PLAIN = frozenset(range(0x20, 0x7F)) - {ord("%")}


class BadRequest(Exception):
    """The request is not gRPC. `http_status` and the text tell a program that does not speak it, or a person."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(text)
        self.http_status = http_status


@dataclass(frozen=True, slots=True)
class Request:
    path: str
    metadata: Mapping[str, str]
    timeout_s: float | None


def read_request(fields: Iterable[tuple[bytes, bytes]], hidden: Collection[str] = ()) -> Request:
    """Read the header fields of a request. Raises BadRequest. Metadata with a name in `hidden` is left out."""
    metadata: dict[str, str] = {}
    method = path = content_type = ""
    timeout_s: float | None = None
    for raw_name, raw_value in fields:
        name, value = raw_name.decode("latin-1"), raw_value.decode("utf-8", "replace")
        if name[:1] == ":":
            if name == ":path":
                path = value
            elif name == ":method":
                method = value
        elif name in _NOT_METADATA:
            if name == "content-type":
                content_type = value
            elif name == "grpc-timeout":
                timeout_s = parse_timeout(value)
        elif name not in hidden:
            metadata[name] = f"{metadata[name]},{value}" if name in metadata else value
    if method != "POST":
        raise BadRequest(405, f"gRPC is served here: the method is {method}, and only POST is taken")
    if not content_type.startswith("application/grpc"):
        raise BadRequest(
            415, f"gRPC is served here: the content-type is {content_type!r}, and application/grpc is taken"
        )
    return Request(path, metadata, timeout_s)


def parse_timeout(text: str) -> float:
    """Seconds of a grpc-timeout. Raises BadRequest."""
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise BadRequest(
            400, f"grpc-timeout is {text!r}: a number of up to 8 digits and one of HMSmun is wanted"
        )
    return int(match[1]) * _SECONDS[match[2]]


def status_trailers(status: GrpcStatus, message: str) -> Fields:
    """The fields that end a call. A message is percent-encoded, as gRPC asks."""
    if status is GrpcStatus.OK and not message:
        return OK_TRAILERS
    return [(b"grpc-status", b"%d" % status), (b"grpc-message", percent_encode(message))]


def percent_encode(text: str) -> bytes:
    return b"".join(
        bytes((byte,)) if byte in _PLAIN else b"%%%02X" % byte for byte in text.encode("utf-8", "replace")
    )
