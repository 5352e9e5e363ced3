"""How an honest client fares beside one that floods the leader, and beside one that sends the same bytes as it should.

One sender waits for each of its acknowledgements, for `--seconds` beside each kind of other client, which sends at most
`--rate` MB a second to the same broker. Told are the honest client's messages per second, with the ratio to those
beside the client that behaves, its p99, and the leader's memory at the end of the turn.

    .venv/bin/python benchmarks/floods.py [--rate 5] [--seconds 5]
"""

import argparse
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import uvloop
from running import LocalCluster, end_on_sigterm, local_cluster, pss_mib

from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.frame.command import request

BASE_PORT = 28_900
CONNECTIONS = 8  # of the other client
BODY = bytes(16 * 1024)
SEND = {
    "a": "p", "b": "T", "c": "TBW102", "d": "8", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
    "i": "", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
PULL = {
    "consumerGroup": "g", "topic": "T", "queueId": "7", "queueOffset": "0", "maxMsgNums": "32", "sysFlag": "2",
    "commitOffset": "0", "suspendTimeoutMillis": "20000", "subVersion": "0", "subscription": "*",
}  # fmt: skip
# What a connection sends, piece by piece; whether it reads the answer to each; pieces until it begins anew, 0: never.
Pieces = tuple[Iterator[bytes], bool, int]


def repeated(data: bytes) -> Iterator[bytes]:
    while True:
        yield data


def without_an_end() -> Iterator[bytes]:
    """Of a frame of 16 MiB, of which half comes."""
    yield struct.pack(">II", 16 * 1024 * 1024 - 4, 0)
    yield from repeated(bytes(64 * 1024))


def frame(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    return request(code, fields, body, opaque=1).encode()


KINDS: dict[str, Callable[[], Pieces] | None] = {
    "sends as it should": lambda: (repeated(frame(RequestCode.SEND_MESSAGE_V2, SEND, BODY)), True, 0),
    "nobody": None,
    "frames without an end": lambda: (without_an_end(), False, 128),
    "answers not read": lambda: (repeated(frame(RequestCode.GET_ALL_TOPIC_CONFIG, {}) * 8), False, 4096),
    "pulls that wait": lambda: (repeated(frame(RequestCode.PULL_MESSAGE, PULL) * 8), False, 0),
    "no frames at all": lambda: (repeated(b"\xff" * 1024), False, 1),
    "unknown requests": lambda: (repeated(frame(9999, {}) * 8), False, 0),
}


class OtherClient:
    """Sends from `__enter__` to `__exit__`, on connections of its own, each in a thread."""

    def __init__(self, address: str, pieces: Callable[[], Pieces] | None, bytes_per_s: float) -> None:
        self._address = address
        self._pieces = pieces
        self._bytes_per_s = bytes_per_s / CONNECTIONS
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(CONNECTIONS if pieces else 0)]
        self.sent = 0

    def __enter__(self) -> "OtherClient":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        began, sent = time.monotonic(), 0
        host, port = self._address.split(":")
        while not self._ended.is_set():
            assert self._pieces is not None, "a thread has something to send"
            pieces, reads, count_max = self._pieces()
            # The server may close it, and leaves what it does not want to read: both end the attempt, not the flood.
            with suppress(OSError), socket.create_connection((host, int(port)), 1) as connection:
                for number, piece in enumerate(pieces, 1):
                    connection.sendall(piece)
                    if reads:
                        connection.recv(65536)
                    sent += len(piece)
                    self._ended.wait(max(0.0, began + sent / self._bytes_per_s - time.monotonic()))
                    if self._ended.is_set() or number == count_max:
                        break
        self.sent += sent


async def honest(address: str, seconds: float) -> list[float]:
    """Seconds until each acknowledgement."""
    client = RemotingClient()
    took: list[float] = []
    end = time.monotonic() + seconds
    while (began := time.monotonic()) < end:
        answer = await client.invoke(
            address, request(RequestCode.SEND_MESSAGE_V2, SEND, b"x" * 1024, opaque=0), 30
        )
        assert answer.code == 0, answer.remark
        took.append(time.monotonic() - began)
    await client.close()
    return took


def turn(cluster: LocalCluster, kind: str, options: argparse.Namespace) -> tuple[float, float, float, float]:
    """Messages per second, p99 in ms, MB/s of the other client, MiB of the leader."""
    leader = cluster.leader()
    address = leader["listen"]
    with OtherClient(address, KINDS[kind], options.rate * 1e6) as other:
        took = sorted(uvloop.run(honest(address, options.seconds)))
        memory = pss_mib(int(leader["pid"]))
    return (
        len(took) / options.seconds,
        1000 * took[len(took) * 99 // 100],
        other.sent / 1e6 / options.seconds,
        memory,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--rate", type=float, default=5, help="MB a second of the other client")
    parser.add_argument("--seconds", type=float, default=5)
    options = parser.parse_args()
    end_on_sigterm()
    print(f"{'beside':<24} {'messages/s':>16} {'p99 ms':>8} {'other MB/s':>11} {'leader MiB':>11}")
    with local_cluster(BASE_PORT, {}) as cluster:
        cluster.up()
        turn(cluster, "nobody", options)  # warms it up, and makes the topic
        behaved = 0.0
        for kind in KINDS:
            rate, p99, sent, memory = turn(cluster, kind, options)
            behaved = behaved or rate
            print(f"{kind:<24} {rate:8,.0f} ({rate / behaved:5.2f}) {p99:8.1f} {sent:11.1f} {memory:11.0f}")


if __name__ == "__main__":
    main()
