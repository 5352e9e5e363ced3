"""Prefaces of load balancers as bytes."""

import struct

import pytest

from remoting.proxy_protocol import NO_PREFACE, Preface, PrefaceError, read_preface

START = b"\r\n\r\n\0\r\nQUIT\n"
TCP4 = (
    START
    + b"\x21\x11"
    + struct.pack(">H4s4sHH", 12, bytes([10, 1, 2, 3]), bytes([10, 0, 0, 1]), 40_000, 8081)
)
TCP6 = (
    START
    + b"\x21\x21"
    + struct.pack(">H16s16sHH", 40, bytes(15) + b"\1", bytes(16), 40_001, 8081)
    + b"\4\0\1x"
)


@pytest.mark.parametrize(
    ("data", "source"),
    [
        (b"PROXY TCP4 10.1.2.3 10.0.0.1 40000 8081\r\n", "10.1.2.3:40000"),
        (b"PROXY TCP6 fe80::1 fe80::2 40000 8081\r\n", "[fe80::1]:40000"),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN whatever it says\r\n", None),
        (TCP4, "10.1.2.3:40000"),
        (TCP6, "[::1]:40001"),
        (START + b"\x20\0\0\0", None),
        (START + b"\x21\x31\0\2ab", None),
    ],
)
def test_a_preface_is_read_once_it_is_whole(data: bytes, source: str | None) -> None:
    for size in range(len(data)):
        assert read_preface(data[:size]) is None
    assert read_preface(data) == Preface(len(data), source)
    assert read_preface(data + b"PRI * HTTP/2.0") == Preface(len(data), source)


@pytest.mark.parametrize(
    "data", [b"PRI * HTTP/2.0\r\n", b"\x16\3\1", b"\0\0\0\x50", b"\r\n\r\nx", b"PROXIES"]
)
def test_what_is_no_preface_is_left_alone(data: bytes) -> None:
    assert read_preface(data) is NO_PREFACE


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY TCP4 10.1.2.3 10.0.0.1 40000\r\n",
        b"PROXY TCP4 fe80::1 fe80::2 40000 8081\r\n",
        b"PROXY TCP4 10.1.2.3 10.0.0.1 70000 8081\r\n",
        b"PROXY " + b"x" * 101,
        START + b"\x11\x11\0\0",
        START + b"\x21\x11\xff\xff",
        START + b"\x21\x11\0\2ab",
    ],
)
def test_a_broken_preface_is_refused(data: bytes) -> None:
    with pytest.raises(PrefaceError):
        read_preface(data)
