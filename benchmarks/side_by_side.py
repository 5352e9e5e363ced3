"""Figures of our cluster, the real DLedger group and the hot-path prototype, taken in one run on one machine.

The load programs are not part of this project: a cheap client (`--mqload`, required; see README.md for the options it
must know) and, where given, a program that boots and loads the real RocketMQ (`--oracle`) and the prototype
(`--prototype`). What is not given is left out and said so. One JSON line per measurement goes to `--out`; the table in
docs/benchmarks.md is made from it. Absolute figures belong to the machine; compare columns of one run.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from running import ROOT, LocalCluster, end_on_sigterm, idle, local_cluster

LOADS = (("64x1K", 64, 1024), ("1x1K", 1, 1024), ("64x128", 64, 128), ("1x128", 1, 128))


@dataclass(frozen=True)
class Server:
    """A system under load: where its NameServer listens and which processes serve."""

    name: str
    namesrv: str
    pids: tuple[int, ...]

    def pid_list(self) -> str:
        return " ".join(map(str, self.pids))


class Bench:
    """Runs the load programs and writes what they print."""

    def __init__(self, mqload: Path, out: Path, seconds: float, *, official: bool) -> None:
        self.mqload = mqload
        self.out = out
        self.seconds = seconds
        self.official = official

    def write(self, server: str, measure: str, figures: dict[str, Any]) -> None:
        line = json.dumps({**figures, "server": server, "measure": measure})
        with self.out.open("a") as file:
            file.write(line + "\n")
        print(line, flush=True)

    def load(self, server: Server, measure: str, *arguments: str) -> dict[str, Any]:
        command = [str(self.mqload), *arguments, "-namesrv", server.namesrv, "-pids", server.pid_list()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        figures = json.loads(lines[-1]) if lines else {"error": done.stderr[-500:]}
        self.write(server.name, measure, figures)
        return figures

    def produce(self, server: Server, *, warm_up: float) -> None:
        for index, (label, senders, size) in enumerate(LOADS):
            warm = str(warm_up if index == 0 else 2)
            options = [
                "-senders",
                str(senders),
                "-size",
                str(size),
                "-seconds",
                str(self.seconds),
                "-warmup",
                warm,
            ]
            self.load(server, label, "send", "-topic", f"T{senders}x{size}", *options)

    def read_back(self, server: Server) -> None:
        self.load(server, "read 1K", "read", "-topic", "T64x1024", "-group", "bench_reader")

    def idle(self, server: Server, measure: str, seconds: float) -> None:
        self.write(server.name, measure, idle(server.pids, seconds))


def official_benchmark(bench: Bench, oracle: Path, server: Server) -> None:
    """The benchmark producer that RocketMQ ships: binary headers, 64 threads, a connection of its own kind."""
    for size in (128, 1024):
        options = ["--topic", f"Official{size}", "--queues", "8", "--threads", "64", "--size", str(size)]
        command = [
            str(oracle),
            "bench",
            "produce",
            "--namesrv",
            server.namesrv,
            *options,
            "--pids",
            server.pid_list(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        figures = json.loads(lines[-1]) if lines else {"error": done.stderr[-500:]}
        bench.write(server.name, f"official 64x{size}", figures)


def measure_ours(
    bench: Bench, oracle: Path | None, base_port: int, flush: str, kills: int, idle_seconds: float
) -> None:
    name = "ours " + ("sync" if flush == "SYNC_FLUSH" else "async")
    with local_cluster(base_port, {"flushDiskType": flush}) as cluster:
        bench.write(name, "start to serving", {"seconds": round(cluster.up(), 2)})
        server = Server(name, cluster.namesrv, cluster.pids())
        everything = Server(name, cluster.namesrv, cluster.all_pids())
        bench.idle(everything, "idle", idle_seconds)
        bench.produce(server, warm_up=3)
        bench.read_back(server)
        if oracle and bench.official:
            official_benchmark(bench, oracle, server)
        bench.idle(everything, "after load", 5)
        for number in range(kills):
            failover(bench, name, cluster, number)


def failover(bench: Bench, name: str, cluster: LocalCluster, number: int) -> None:
    leader = cluster.leader()
    server = Server(name, cluster.namesrv, ())
    history = cluster.directory.parent / f"failover-{number}.tsv"
    options = [
        "-topic",
        f"Failover{number}",
        "-warmup",
        "1",
        "-history",
        str(history),
        "-kill-cmd",
        f"kill -9 {leader['pid']}",
    ]
    bench.load(server, f"failover {number}", "failover", *options)
    cluster.call("start", leader["id"])
    bench.load(
        server,
        f"failover {number} verify",
        "verify",
        "-topic",
        f"Failover{number}",
        "-history",
        str(history),
        "-group",
        f"verify{number}",
    )


def measure_oracle(bench: Bench, oracle: Path, base_port: int, kills: int) -> None:
    """The real DLedger group, from page cache: it has no other way to acknowledge."""
    run = Path(tempfile.mkdtemp(prefix="oracle-bench-"))
    environment = {**os.environ, "ORACLE_RUN": str(run / "run")}

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(oracle), *arguments], env=environment, check=True, text=True, capture_output=True
        )

    began = time.monotonic()
    try:
        call("up", "--mode", "dledger", "--base-port", str(base_port))
        bench.write("java dledger", "start to serving", {"seconds": round(time.monotonic() - began, 2)})
        brokers = [int((run / "run" / f"broker-{i}" / "pid").read_text()) for i in range(3)]
        namesrv = int((run / "run" / "namesrv" / "pid").read_text())
        server = Server("java dledger", f"127.0.0.1:{base_port}", tuple(brokers))
        everything = Server(server.name, server.namesrv, (namesrv, *brokers))
        bench.idle(everything, "idle", 10)
        bench.produce(server, warm_up=10)
        bench.read_back(server)
        if bench.official:
            official_benchmark(bench, oracle, server)
        bench.idle(everything, "after load", 5)
        for number in range(kills):
            kill = (
                f"kill -9 $(cat {run}/run/broker-$(((${{MQLOAD_LEADER##*:}} - {base_port}) / 100 - 1))/pid)"
            )
            options = ["-topic", f"Failover{number}", "-warmup", "12", "-kill-cmd", kill]
            bench.load(Server(server.name, server.namesrv, ()), f"failover {number}", "failover", *options)
            for index in range(3):
                pid = int((run / "run" / f"broker-{index}" / "pid").read_text())
                if not Path(f"/proc/{pid}").exists():
                    call("start", str(index))
            time.sleep(12)  # its followers fetch topics and groups every 10 s
    finally:
        subprocess.run([str(oracle), "down"], env=environment, check=False)
        shutil.rmtree(run)


def measure_prototype(bench: Bench, prototype: Path, *, sync: bool) -> None:
    """The shape without checks, chain, queues or Raft: what could be reached, not what could be used."""
    work = Path(tempfile.mkdtemp(prefix="prototype-bench-"))
    environment = {**os.environ, "SYNC": "1" if sync else "0"}
    processes = []
    try:
        for arguments in (("f", "30912"), ("f", "30913"), ("l",)):
            command = [sys.executable, str(prototype), *arguments]
            processes.append(subprocess.Popen(command, cwd=work, env=environment))
            time.sleep(1)
        pids = tuple(process.pid for process in processes)
        server = Server("prototype " + ("sync" if sync else "async"), "127.0.0.1:30876", pids)
        for label, senders in (("64x1K", 64), ("1x1K", 1)):
            options = ["-senders", str(senders), "-size", "1024", "-seconds", "4", "-warmup", "2"]
            bench.load(server, label, "send", "-topic", "T", *options)
    finally:
        for process in processes:
            process.send_signal(signal.SIGKILL)
            process.wait()
        shutil.rmtree(work)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mqload", type=Path, required=True, help="the cheap client")
    parser.add_argument("--oracle", type=Path, help="boots the real RocketMQ; left out: no Java column")
    parser.add_argument("--prototype", type=Path, help="hotpath.py; left out: no prototype column")
    parser.add_argument("--base-port", type=int, default=27000)
    parser.add_argument("--seconds", type=float, default=6, help="measured part of each load (default 6)")
    parser.add_argument("--idle-seconds", type=float, default=60, help="before the idle figures (default 60)")
    parser.add_argument("--kills", type=int, default=20, help="failovers of our cluster (default 20)")
    parser.add_argument("--java-kills", type=int, default=3, help="failovers of the real group (default 3)")
    parser.add_argument(
        "--official", action="store_true", help="RocketMQ's own benchmark producer too (40 s each)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "run" / "benchmarks.jsonl")
    options = parser.parse_args()
    end_on_sigterm()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("")
    bench = Bench(options.mqload.resolve(), options.out, options.seconds, official=options.official)
    oracle = options.oracle.resolve() if options.oracle else None
    if options.prototype:
        measure_prototype(bench, options.prototype.resolve(), sync=False)
    measure_ours(bench, oracle, options.base_port, "ASYNC_FLUSH", 0, 5)
    if options.prototype:
        measure_prototype(bench, options.prototype.resolve(), sync=True)
    measure_ours(bench, oracle, options.base_port, "SYNC_FLUSH", options.kills, options.idle_seconds)
    if oracle:
        measure_oracle(bench, oracle, options.base_port + 200, options.java_kills)
    else:
        print("no --oracle: the real DLedger group was not measured", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
