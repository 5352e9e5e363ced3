"""What the proxy pays per call for carrying gRPC, without sockets, brokers and neighbours (ADR 14).

A connection of the proxy is handed the bytes of a client that writes header fields as RocketMQ's clients do. A handler
answers a send of 1 KiB with one short message, or a receive with 32 messages of 1 KiB. Told is the best of many rounds
in CPU time, which other work on the machine disturbs least.

    .venv/bin/python benchmarks/micro_grpc.py [--rounds 20] [--profile calls.prof]
"""

import argparse
import asyncio
import cProfile
import time
from collections.abc import Iterator

import uvloop
from hpack import Encoder

from proxy.grpc import frames
from proxy.grpc.call import Call
from proxy.grpc.connection import GrpcConnection
from proxy.grpc.frames import DATA, END_HEADERS, END_STREAM, HEADERS, PREFACE, WINDOW_MAX, Setting, frame
from proxy.grpc.messages import encode_message
from proxy.grpc.server import GrpcServer

BODY = b"x" * 1024
ANSWER = b"y" * 60
MESSAGES = 32
CALLS = 1600
FIELDS = {
    ":method": "POST",
    ":scheme": "http",
    ":authority": "127.0.0.1:8081",
    "te": "trailers",
    "content-type": "application/grpc",
    "user-agent": "grpc-python-asyncio/1.70.0",
    "grpc-accept-encoding": "identity, deflate, gzip",
    "grpc-timeout": "3S",
    "x-mq-client-id": "host@1234@0@abcdef",
    "x-mq-language": "PYTHON",
    "x-mq-client-version": "5.1.2",
    "x-mq-protocol": "GRPC_V2",
}


async def send(call: Call) -> None:
    await call.receive()
    await call.send(ANSWER)


async def receive(call: Call) -> None:
    await call.receive()
    for _ in range(MESSAGES):
        await call.send(BODY)


class Socket(asyncio.Transport):
    """Takes everything."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...
    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


def requests(path: str) -> Iterator[bytes]:
    encoder = Encoder()
    for number in range(CALLS):
        varying = {"x-mq-date-time": f"20261128T140{number // 100:03}Z", "x-mq-request-id": f"{number:032x}"}
        block = encoder.encode(
            [(":path", path), *FIELDS.items(), *varying.items()], huffman=False
        )  # as grpcio
        stream_id = 2 * number + 1
        yield frame(HEADERS, END_HEADERS, stream_id, block) + frame(
            DATA, END_STREAM, stream_id, encode_message(BODY)
        )


async def one_round(server: GrpcServer, path: str, batch: int) -> float:
    """µs of CPU for each call, `batch` of them in one read."""
    connection = GrpcConnection(server)
    connection.connection_made(Socket())
    connection.data_received(PREFACE + frames.settings({Setting.INITIAL_WINDOW_SIZE: WINDOW_MAX // 2}))
    connection.data_received(frames.window_update(0, WINDOW_MAX // 2))
    each = list(requests(path))
    reads = [b"".join(each[start : start + batch]) for start in range(0, CALLS, batch)]
    began = time.thread_time_ns()
    for read in reads:
        connection.data_received(read)
        while connection.calls:  # noqa: ASYNC110 - an event would be measured, too
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    spent = time.thread_time_ns() - began
    connection.connection_lost(None)
    return spent / 1000 / CALLS


async def measure(rounds: int) -> None:
    server = GrpcServer({"/send": send, "/receive": receive}, "127.0.0.1", 0)
    await server.start()
    print("calls in a read; us a send; us a streamed message")
    for batch in (1, 16):
        a_send = min([await one_round(server, "/send", batch) for _ in range(rounds)])
        a_receive = min([await one_round(server, "/receive", batch) for _ in range(rounds)])
        print(f"{batch:>2}  {a_send:5.1f}  {a_receive / MESSAGES:5.2f}")
    await server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", help="where to write a profile of all rounds")
    options = parser.parse_args()
    profile = cProfile.Profile() if options.profile else None
    if profile is not None:
        profile.enable()
    uvloop.run(measure(options.rounds))
    if profile is not None:
        profile.disable()
        profile.dump_stats(options.profile)


if __name__ == "__main__":
    main()
