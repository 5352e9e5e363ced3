"""What access control and TLS cost the servers per message, as ratios to neither, in one run.

A cluster of three brokers for each kind, side by side: open and in plaintext, with access control, with TLS between
clients and brokers, with TLS between members as well, and with all of it. `--connections` clients send messages one
after the other, each on a connection of its own, for `--seconds` to one cluster after the other, `--rounds` times. Told
are the medians of messages per second and of microseconds of CPU time per message, of the leader and of all brokers,
and their ratios to the first kind.

    .venv/bin/python benchmarks/security_cost.py [--connections 64] [--body-size 1024]
"""

import argparse
import asyncio
import json
import statistics
import time
from contextlib import ExitStack
from typing import NamedTuple

import uvloop
from running import LocalCluster, cpu_seconds, end_on_sigterm, local_cluster

from auth.credentials import Credentials
from mqclient.connecting import tls_from_file
from remoting.bodies.auth_bodies import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.bodies.bodies import RemotingBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import request

BASE_PORT = 28_300
PLAIN = "neither"
ROOT, APP = Credentials("root", "root-secret"), Credentials("app", "app-secret")
_ACCESS = ("--conf", "authenticationEnabled=true", "--conf", "authorizationEnabled=true")
_CLIENTS, _ALL = ("--tls", "--conf", "pyDLedgerPeerTls=disabled"), ("--tls",)
KINDS: dict[str, tuple[str, ...]] = {
    PLAIN: (),
    "access control": _ACCESS,
    "TLS of clients": _CLIENTS,
    "TLS of clients and members": _ALL,
    "access control and all TLS": _ACCESS + _ALL,
}


class Cost(NamedTuple):
    """Of one turn."""

    messages_per_s: float
    leader_us: float  # CPU time per message
    all_us: float


def client_of(cluster: LocalCluster, user: Credentials) -> RemotingClient:
    """Signs where the cluster checks it, and uses TLS where it has some."""
    file = cluster.directory / "tls" / "client.properties"
    connect = tls_from_file(str(file)) if file.exists() else None
    return RemotingClient(connect=connect, before_request=user.sign if has_access_control(cluster) else None)


def has_access_control(cluster: LocalCluster) -> bool:
    return _ACCESS[1] in cluster.up_options


async def make_user(cluster: LocalCluster, address: str) -> None:
    """APP, who may write to the topic."""
    root = client_of(cluster, ROOT)

    async def change(code: RequestCode, fields: dict[str, str], body: RemotingBody) -> None:
        command = request(code, fields, body.encode(), opaque=0)
        end = time.monotonic() + 30
        # Until each member has told that it knows users, they are refused.
        while (answer := await root.invoke(address, command, 10)).code != ResponseCode.SUCCESS:
            assert time.monotonic() < end, answer.remark

    user = UserInfo(username=APP.access_key, password=APP.secret_key)
    await change(RequestCode.AUTH_CREATE_USER, {"username": APP.access_key}, user)
    entry = PolicyEntryInfo(resource="Topic:T", actions=["Pub"], decision="Allow")
    subject = f"User:{APP.access_key}"
    acl = AclInfo(subject=subject, policies=[PolicyInfo(policy_type="Custom", entries=[entry])])
    await change(RequestCode.AUTH_CREATE_ACL, {"subject": subject}, acl)
    await root.close()


async def send_for(cluster: LocalCluster, address: str, connections: int, body: bytes, seconds: float) -> int:
    """How many were acknowledged."""
    fields = {
        "a": "p", "b": "T", "c": "TBW102", "d": "8", "f": "0", "g": "1700000000000", "h": "0",
        "i": "", "j": "0", "k": "false", "m": "false",
    }  # fmt: skip
    end = time.monotonic() + seconds

    async def send(number: int) -> int:
        client = client_of(cluster, APP)
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
            cluster.environment = {
                "PYDLEDGER_INIT_AUTHENTICATION_USER": json.dumps(
                    {"username": ROOT.access_key, "password": ROOT.secret_key}
                ),
                "PYDLEDGER_ACCESS_KEY": ROOT.access_key,
                "PYDLEDGER_SECRET_KEY": ROOT.secret_key,
            }
            cluster.up()
            if has_access_control(cluster):
                uvloop.run(make_user(cluster, cluster.leader()["listen"]))
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
            for value, base, width in zip(cost, medians[PLAIN], (10, 6, 6), strict=True)
        ]
        print(f"{kind:<28} {' '.join(shown)}")


if __name__ == "__main__":
    main()
