"""What size costs: restarts, idle CPU, look-ups by key and reads of a large store, each beside the same of a small one.

The load program of side_by_side.py fills the log and reads it, which needs Go. One JSON line per measurement goes to
`--out`. A restart is: SIGKILL to all three brokers, then the seconds until clients can send and
until every member has dispatched all that is committed.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from running import ROOT, LocalCluster, end_on_sigterm, idle, local_cluster
from systems import MissingError, go_built

from mqclient import Message, Producer, SendError
from mqclient.client_api import ClientApi
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode

FILL_S = 15  # of one call of the load program
IN_FLIGHT = 64
BODY_SIZE = 4096
FOREVER_MS = 2**62
FILL_COUNT = 64  # messages of one write to a connection
KEYS_PER_MESSAGE = 32
PARTS = ("topics", "log", "keys")


class Measured:
    def __init__(self, cluster: LocalCluster, out: Path) -> None:
        self.cluster = cluster
        self.out = out

    def write(self, measure: str, figures: dict[str, Any]) -> None:
        line = json.dumps({**figures, "measure": measure})
        with self.out.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)

    def load(self, *arguments: str) -> dict[str, Any]:
        command = [str(go_built("load", ".")), *arguments, "-at", self.cluster.namesrv]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-500:]}")
        return dict(json.loads(done.stdout.splitlines()[-1]))

    def fill(self, topic: str, options: Iterable[str], is_enough: Callable[[], bool]) -> None:
        while not is_enough():
            self.load("send", "-topic", topic, "-warmup", "0", "-seconds", str(FILL_S), *options)

    def entry_count(self) -> int:
        return int(self.cluster.leader()["ledger_end"]) + 1

    def is_level(self) -> bool:
        nodes = self.cluster.nodes()
        if any(node["role"] not in ("LEADER", "FOLLOWER") for node in nodes):
            return False
        return len({node[what] for node in nodes for what in ("ledger_end", "applied")}) == 1

    def wait_level(self) -> None:
        while not self.is_level():
            time.sleep(0.1)

    def restart(self, measure: str) -> None:
        self.wait_level()
        for node in self.cluster.nodes():
            self.cluster.call("kill", node["id"])
        began = time.monotonic()
        serving = self.cluster.up()
        self.wait_level()
        level = time.monotonic() - began
        self.write(f"restart, {measure}", {"serving_s": round(serving, 2), "level_s": round(level, 2)})

    def idle(self, measure: str) -> None:
        time.sleep(5)
        self.write(f"idle, {measure}", idle(self.cluster.all_pids(), 20))

    def ask(self, question: Callable[[ClientApi, str], Awaitable[dict[str, Any]]]) -> dict[str, Any]:
        """`question` gets the leader's address."""
        address = str(self.cluster.leader()["listen"])

        async def asked() -> dict[str, Any]:
            remoting = RemotingClient()
            try:
                return await question(ClientApi(remoting, timeout_s=30), address)
            finally:
                await remoting.close()

        return asyncio.run(asked())


async def create_topics(api: ClientApi, leader: str, count: int) -> dict[str, Any]:
    names = iter([f"Scale-{number}" for number in range(count)])

    async def creator() -> None:
        for name in names:
            await api.create_topic(leader, name, read_queues=4, write_queues=4)

    began = time.monotonic()
    await asyncio.gather(*(creator() for _ in range(IN_FLIGHT)))
    seconds = time.monotonic() - began
    return {"topics": count, "seconds": round(seconds, 1), "per_s": round(count / seconds)}


async def query_keys(api: ClientApi, leader: str, keys: Iterable[str]) -> dict[str, Any]:
    """One by one; each key is that of one message."""
    times = []
    for key in keys:
        fields = {"topic": "Marked", "key": key, "maxNum": "64", "beginTimestamp": "0"}
        began = time.perf_counter()
        answer = await api.ask(
            leader, RequestCode.QUERY_MESSAGE, {**fields, "endTimestamp": str(FOREVER_MS)}, timeout_s=30
        )
        times.append(1000 * (time.perf_counter() - began))
        if answer.code != ResponseCode.SUCCESS or key.encode() not in answer.body:
            raise RuntimeError(f"{key} is not found: {answer.code} {answer.remark}")
    times.sort()
    p99 = times[int(0.99 * len(times))]
    return {"p50_ms": round(statistics.median(times), 2), "p99_ms": round(p99, 2), "queries": len(times)}


async def mark(namesrv: str, keys: Iterable[str]) -> None:
    async with Producer(namesrv) as producer:
        for key in keys:
            await producer.send(Message("Marked", key.encode(), keys=key))


async def send_keyed(namesrv: str, parts: Iterable[int]) -> None:
    """A part is FILL_COUNT messages with many keys each, found nowhere else."""
    parts = iter(parts)

    async def sender(producer: Producer) -> None:
        for part in parts:
            first = part * FILL_COUNT * KEYS_PER_MESSAGE
            messages = [
                Message(
                    "Keyed",
                    b"-",
                    keys=[f"key{first + at + number}" for number in range(KEYS_PER_MESSAGE - 1)],
                )
                for at in range(0, FILL_COUNT * KEYS_PER_MESSAGE, KEYS_PER_MESSAGE)
            ]
            while messages:
                outcomes = await producer.send_batch(messages)
                failed = [at for at, outcome in enumerate(outcomes) if isinstance(outcome, SendError)]
                messages = [messages[at] for at in failed]

    async with Producer(namesrv) as producer:
        await asyncio.gather(*(sender(producer) for _ in range(4)))


def measure_keys(run: Measured, key_count: int) -> None:
    """Messages have KEYS_PER_MESSAGE keys, the unique one included: the keys are what is measured, not the sends."""
    namesrv = run.cluster.namesrv
    asyncio.run(mark(namesrv, (f"few{number}" for number in range(200))))
    few = run.ask(lambda api, leader: query_keys(api, leader, (f"few{number}" for number in range(200))))
    run.write("query by key, few keys", few)
    part_count = -(-key_count // (FILL_COUNT * KEYS_PER_MESSAGE))
    steps = [range(part_count * step // 10, part_count * (step + 1) // 10) for step in range(10)]
    began = time.monotonic()
    for step, parts in enumerate(steps):
        asyncio.run(send_keyed(namesrv, parts))
        asyncio.run(mark(namesrv, (f"many{step}-{number}" for number in range(20))))
    sent = time.monotonic()
    keys = [f"many{step}-{number}" for step in range(len(steps)) for number in range(20)]
    run.ask(lambda api, leader: until_indexed(api, leader, keys[-1]))
    count = part_count * FILL_COUNT * KEYS_PER_MESSAGE
    what = f"{count:,} keys, {KEYS_PER_MESSAGE} per message"
    indexed = time.monotonic()
    figures = {"send_s": round(sent - began, 1), "behind_s": round(indexed - sent, 1)}
    run.write(f"indexed, {what}", {**figures, "keys_per_s": round(count / (indexed - began))})
    many = run.ask(lambda api, leader: query_keys(api, leader, keys))
    run.write(f"query by key, {what}", many)


async def until_indexed(api: ClientApi, leader: str, key: str) -> dict[str, Any]:
    """The newest key is in the index only when all before it are."""
    while True:
        try:
            return await query_keys(api, leader, [key])
        except RuntimeError:
            await asyncio.sleep(0.5)


def measure_reading(run: Measured, topic: str) -> None:
    run.load("read", "-topic", topic)
    for measure in ("hot", "cold"):
        if measure == "cold":
            drop_from_page_cache(run.cluster.directory)
        figures = run.load("read", "-topic", topic)
        run.write(
            f"read {topic}, {measure}", {name: figures.get(name) for name in ("msgs_per_s", "mib_per_s")}
        )


def drop_from_page_cache(directory: Path) -> None:
    for path in directory.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=PARTS, help="of what is measured (default: all)"
    )
    parser.add_argument("--base-port", type=int, default=27000)
    parser.add_argument("--log-gb", type=float, default=5, help="size of the log, 4 KiB messages (default 5)")
    parser.add_argument("--queues", type=int, default=1000, help="queues of its topic (default 1000)")
    parser.add_argument("--topics", type=int, default=10_000, help="topics of 4 queues (default 10000)")
    parser.add_argument("--keys", type=int, default=10_000_000, help="in the IndexFiles (default 10 million)")
    parser.add_argument("--out", type=Path, default=ROOT / "run" / "at_scale.jsonl")
    options = parser.parse_args()
    if "log" in options.parts:
        try:
            go_built("load", ".")
        except MissingError as error:
            parser.error(f"the part `log` is not possible: {error}")
    end_on_sigterm()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("")
    if "topics" in options.parts:
        with local_cluster(options.base_port, {}) as cluster:
            run = Measured(cluster, options.out)
            cluster.up()
            run.idle("empty")
            run.restart("empty")
            run.write(
                f"{options.topics} topics made",
                run.ask(lambda api, leader: create_topics(api, leader, options.topics)),
            )
            run.idle(f"{options.topics} topics")
            run.restart(f"{options.topics} topics")
    if "log" in options.parts:
        with local_cluster(options.base_port, {}) as cluster:
            run = Measured(cluster, options.out)
            cluster.up()
            entries = int(options.log_gb * (1 << 30)) // BODY_SIZE
            wide = ("-queues", str(options.queues), "-size", str(BODY_SIZE), "-senders", "64")
            run.fill("Wide", wide, lambda: run.entry_count() >= entries)
            run.restart(f"{options.log_gb:g} GB, {options.queues} queues")
            measure_reading(run, "Wide")
    if "keys" in options.parts:
        with local_cluster(options.base_port, {}) as cluster:
            run = Measured(cluster, options.out)
            cluster.up()
            measure_keys(run, options.keys)
            run.restart(f"{options.keys:,} keys")
    return 0


if __name__ == "__main__":
    sys.exit(main())
