"""What no sound client sends: recorded frames, HTTP requests and TLS hellos with something wrong about them."""

from __future__ import annotations

import base64
import gzip
import json
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from local_cluster import ROOT

from remoting.codes import RequestCode

_WIRE: Final = ROOT / "tests" / "golden" / "wire"
# What an operator may ask for, and after which a cluster serves its clients no longer as before.
_LEFT_OUT: Final = {
    RequestCode.UPDATE_BROKER_CONFIG,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.UPDATE_NAMESRV_CONFIG,
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
}
_SIZE_MAX: Final = 64 * 1024  # of one recorded frame; large ones are only slow to send
_HTTP: Final = (
    b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n",
    b"POST /status HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabcde",
)
# A preface, empty SETTINGS, HEADERS of a POST without a path, and DATA of 5 bytes.
_HTTP2: Final = b"".join(
    (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x00\x00\x00\x04\x00\x00\x00\x00\x00",
        b"\x00\x00\x02\x01\x04\x00\x00\x00\x01\x83\x86",
        b"\x00\x00\x05\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00",
    )
)


def remoting_frames() -> list[bytes]:
    """Of recorded clients: one of each code and length."""
    found: dict[tuple[int, int], bytes] = {}
    for path in sorted(_WIRE.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row["kind"] == "response" or "frame_b64" not in row or row["code"] in _LEFT_OUT:
                    continue
                frame = base64.b64decode(row["frame_b64"])
                if len(frame) <= _SIZE_MAX:
                    found[row["code"], len(frame)] = frame
    return list(found.values())


def http_requests() -> list[bytes]:
    return [*_HTTP, _HTTP2]


def tls_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("nobody has answered the hello")


def spoiled(sound: Sequence[bytes], random: Random) -> Iterator[bytes]:
    """Without an end: one to three of `sound` together, and mostly something wrong in them."""
    ways: Sequence[Callable[[bytearray, Random], None]] = (
        _sound,
        _flipped,
        _cut,
        _grown,
        _with_number,
        _with_repetition,
        _noise,
    )
    while True:
        data = bytearray(b"".join(random.choices(sound, k=random.choice((1, 1, 1, 2, 3)))))
        for _ in range(random.choice((1, 1, 2, 4))):
            random.choice(ways)(data, random)
        yield bytes(data)


def _sound(data: bytearray, random: Random) -> None:
    pass


def _flipped(data: bytearray, random: Random) -> None:
    for _ in range(random.choice((1, 1, 8))):
        if data:
            data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _cut(data: bytearray, random: Random) -> None:
    del data[random.randrange(len(data) + 1) :]


def _grown(data: bytearray, random: Random) -> None:
    data += random.randbytes(random.choice((1, 16, 4096)))


def _with_number(data: bytearray, random: Random) -> None:
    """A length, a count or an id that is far from what it was; those of a frame's head above all."""
    at = random.choice((0, 4, random.randrange(len(data) + 1)))
    number = random.choice((0, 1, 0x7F, 0xFFFF, 0xFFFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
    data[at : at + 4] = struct.pack(">I", number)


def _with_repetition(data: bytearray, random: Random) -> None:
    """Deep nesting, long lists and fields that come twice are made so."""
    begin = random.randrange(len(data) + 1)
    part = data[begin : begin + random.choice((1, 2, 64))]
    data[begin:begin] = part * random.choice((2, 100, 1000))


def _noise(data: bytearray, random: Random) -> None:
    begin = random.randrange(len(data) + 1)
    size = random.choice((1, 4, 64))
    data[begin : begin + size] = random.randbytes(size)
