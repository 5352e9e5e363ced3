"""What TLS costs the servers per message, as ratios to plaintext of one run.

Three clusters of three brokers run side by side: in plaintext, with TLS between clients and brokers, and with TLS
between members as well. `--connections` clients send messages one after the other, each on a connection of its own, for
`--seconds` to one cluster after the other, `--rounds` times. Told are the medians of messages per second and of
microseconds of CPU time per message, of the leader and of all brokers, and their ratios to plaintext.

    .venv/bin/python benchmarks/tls_cost.py [--connections 64] [--body-size 1024]
"""

import argparse
import asyncio
import statistics
import time
from contextlib import ExitStack
from typing import NamedTuple

import uvloop
from running import LocalCluster, cpu_seconds, end_on_sigterm, local_cluster

from mqclient.connecting import tls_from_file
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.frame.command import request

BASE_PORT = 28_300
KINDS = {
    "plaintext": (),
    "TLS of clients": ("--tls", "--conf", "pyDLedgerPeerTls=disabled"),
    "TLS of clients and members": ("--tls",),
}


class Cost(NamedTuple):
    """Of one turn."""

    messages_per_s: float
    leader_us: float  # CPU time per message
    all_us: float


async def send_for(cluster: LocalCluster, address: str, connections: int, body: bytes, seconds: float) -> int:
    """How many were acknowledged."""
    file = cluster.directory / "tls" / "client.properties"
    connect = tls_from_file(str(file)) if file.exists() else None
    fields = {
        "a": "p", "b": "T", "c": "TBW102", "d": "8", "f": "0", "g": "1700000000000", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    end = time.monotonic() + seconds

    async def send(number: int) -> int:
        client = RemotingClient(connect=connect)
        count = 0
        while time.monotonic() < end:
            command = request(RequestCode.SEND_MESSAGE_V2, fields | {"e": str(number % 8)}, body, opaque=0)
            answer = await client.invoke(address, command, 10)
            assert answer.code == 0, answer.remark
            count += 1
        await client.close()
        return count

    return sum(await asyncio.gather(*map(send, range(connections))))


def turn(cluster: LocalCluster, options: argparse.Namespace) -> Cost:
    leader = cluster.leader()
    pids = cluster.pids()
    before = {pid: cpu_seconds(pid) for pid in pids}
    sending = send_for(
        cluster, leader["listen"], options.connections, bytes(options.body_size), options.seconds
    )
    count = uvloop.run(sending)
    spent = {pid: cpu_seconds(pid) - before[pid] for pid in pids}
    us = 1_000_000 / count
    return Cost(count / options.seconds, spent[int(leader["pid"])] * us, sum(spent.values()) * us)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--body-size", type=int, default=1024)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    end_on_sigterm()
    with ExitStack() as stack:
        clusters = {}
        for number, (kind, up) in enumerate(KINDS.items()):
            cluster = stack.enter_context(local_cluster(BASE_PORT + 100 * number, {}))
            cluster.up_options += up
            cluster.up()
            clusters[kind] = cluster
            turn(cluster, options)  # warms it up, and makes the topic
        costs: dict[str, list[Cost]] = {kind: [] for kind in clusters}
        for _ in range(options.rounds):
            for kind, cluster in clusters.items():
                costs[kind].append(turn(cluster, options))
    medians = {kind: Cost(*map(statistics.median, zip(*turns, strict=True))) for kind, turns in costs.items()}
    print(f"{'':<28} {'messages/s':>18} {'leader us':>14} {'all us':>14}")
    for kind, cost in medians.items():
        shown = [
            f"{value:{width},.0f} ({value / base:4.2f})"
            for value, base, width in zip(cost, medians["plaintext"], (10, 6, 6), strict=True)
        ]
        print(f"{kind:<28} {' '.join(shown)}")


if __name__ == "__main__":
    main()
