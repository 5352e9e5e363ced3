"""For how long nothing is acknowledged: after kill -9 of the leader, of all brokers, and after a power loss of all.

    python benchmarks/outages.py --parts leader all power [--oracle ORACLE] [--out FILE]

Each part has a fresh cluster of three with SYNC_FLUSH. What it measures counts only if all that was acknowledged is
found afterwards and the replicas are equal: they are validated with the history of the run.

- `leader`: a sender of our client every 10 ms, the leader is killed; the longest time between two acknowledgements.
- `all`, `power`: batches of 20 one after the other; all brokers are killed at once. From just before the first broker
  is started until all listen, and until the first acknowledgement: three Pythons with their imports, recovery, the
  election, registration and the client's look at the NameServer. Not the start of a command, and not the NameServer,
  which lives. For `power` the stores are those that a power loss leaves (cluster_tests/power_loss/).
- `java`: as `leader`, with the official client of `--oracle`, without retries, which looks at the NameServer every
  `--poll-ms`.

One JSON line per round goes to `--out`, and a table is printed.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from running import ROOT, end_on_sigterm

sys.path += [str(ROOT / "cluster_tests"), str(ROOT / "cluster_tests" / "power_loss")]

from kill_rounds import Restart, Sender, assert_nothing_lost, kill_all, kill_leader, restart_all, validated
from local_cluster import LocalCluster, port_block
from powered_cluster import PoweredCluster
from preloaded.preload import built

CONF = {"flushDiskType": "SYNC_FLUSH"}
IMAGE_CONF = {**CONF, "mappedFileSizeCommitLog": str(16 << 20)}
SENDS = 500  # acknowledged before each kill of all


class Rounds:
    """Figures in seconds, by what they measure; each also goes to a file as it comes."""

    def __init__(self, out: Path) -> None:
        self._out = out
        self._seconds: dict[str, list[float]] = {}

    def note(self, measure: str, seconds: float) -> None:
        self._seconds.setdefault(measure, []).append(seconds)
        line = json.dumps({"measure": measure, "seconds": round(seconds, 4)})
        with self._out.open("a") as file:
            file.write(line + "\n")

    def note_restart(self, measure: str, restart: Restart) -> None:
        self.note(f"{measure}: listening", restart.listening_s)
        self.note(f"{measure}: first acknowledgement", restart.serving_s)

    def table(self) -> str:
        rows = ["| seconds | rounds | median | worst |", "|---|---|---|---|"]
        for measure, seconds in self._seconds.items():
            rows.append(
                f"| {measure} | {len(seconds)} | {statistics.median(seconds):.3f} | {max(seconds):.3f} |"
            )
        return "\n".join(rows)


def prove(cluster: LocalCluster, sender: Sender, part: str) -> None:
    assert_nothing_lost(validated(cluster, sender.history), sender)
    print(
        f"{part}: {len(sender.places)} acknowledged, all found in equal replicas; "
        f"{sender.failed} failed, {sender.unknown} unknown",
        flush=True,
    )


def measure_leader(cluster: LocalCluster, work: Path, rounds: Rounds, count: int) -> None:
    cluster.up(conf=CONF)
    with Sender(cluster.namesrv, work / "history.jsonl", interval_s=0.01) as sender:
        for _ in range(count):
            sender.wait_acknowledged(50)
            rounds.note("gap after kill -9 of the leader", kill_leader(cluster, sender))
    prove(cluster, sender, "leader")


def measure_all(cluster: LocalCluster, work: Path, rounds: Rounds, count: int) -> None:
    cluster.up(conf=CONF)
    with Sender(cluster.namesrv, work / "history.jsonl", batch_size=20) as sender:
        for _ in range(count):
            sender.wait_acknowledged(SENDS)
            kill_all(cluster, sender)
            rounds.note_restart("kill -9 of all", restart_all(cluster, sender))
    prove(cluster, sender, "all")


def measure_power(cluster: LocalCluster, work: Path, rounds: Rounds, count: int) -> None:
    shim = built(ROOT / "cluster_tests" / "power_loss" / "shim.c", work / "shim.so")
    powered = PoweredCluster(cluster, shim, work, IMAGE_CONF, syncs=True)
    with Sender(cluster.namesrv, work / "history.jsonl", batch_size=20) as sender:
        for number in range(count + 1):
            powered.prepare()
            restart = restart_all(cluster, sender)
            if number:  # the first follows no power loss
                rounds.note_restart("power loss of all", restart)
            sender.wait_acknowledged(SENDS)
            powered.power_off()
    cluster.start_missing()
    prove(cluster, sender, "power")


def measure_java(
    cluster: LocalCluster, oracle: Path, rounds: Rounds, count: int, poll_ms: int, work: Path
) -> None:
    cluster.up(conf=CONF)
    for number in range(count):
        leader = cluster.leader()
        command = [
            *(str(oracle), "failover", "--namesrv", cluster.namesrv, "--poll-ms", str(poll_ms)),
            *("--interval-ms", "10", "--retries", "0", "--kill-cmd", f"kill -9 {cluster.pid(leader)}"),
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, cwd=work)
        lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines:
            raise RuntimeError(f"round {number}: {done.stderr[-500:]}")
        figures: dict[str, Any] = json.loads(lines[-1])
        rounds.note(f"Java's client, poll {poll_ms} ms", figures["outage_ms"] / 1000)
        cluster.start_missing()
        cluster.wait_back(leader)


def main() -> int:
    parts: dict[str, Callable[[LocalCluster, Path, Rounds, int], None]] = {
        "leader": measure_leader,
        "all": measure_all,
        "power": measure_power,
    }
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=[*parts, "java"], default=[*parts], help="(default: all but java)"
    )
    parser.add_argument("--leader-kills", type=int, default=30)
    parser.add_argument("--restarts", type=int, default=50, help="of `all` and of `power`")
    parser.add_argument("--oracle", type=Path, help="boots and loads the real RocketMQ; for `java` alone")
    parser.add_argument("--java-kills", type=int, default=10)
    parser.add_argument("--poll-ms", type=int, default=1000, help="Java's pollNameServerInterval")
    parser.add_argument("--out", type=Path, default=ROOT / "run" / "outages.jsonl")
    options = parser.parse_args()
    if "java" in options.parts and options.oracle is None:
        parser.error("java needs --oracle")
    end_on_sigterm()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("")
    rounds = Rounds(options.out)
    for part in options.parts:
        with tempfile.TemporaryDirectory(prefix="pydledger-outages-") as name, port_block() as base_port:
            cluster = LocalCluster(Path(name) / "cluster", base_port)
            try:
                if part == "java":
                    oracle = options.oracle.resolve()
                    measure_java(cluster, oracle, rounds, options.java_kills, options.poll_ms, Path(name))
                else:
                    count = options.leader_kills if part == "leader" else options.restarts
                    parts[part](cluster, Path(name), rounds, count)
            finally:
                cluster.down()
    print(rounds.table())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
