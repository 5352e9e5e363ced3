"""What pulls with an SQL92 filter cost beside pulls by tag and without a filter, as ratios of one run.

Three brokers in this process, as in micro_hot_path.py, hold messages of one queue, of which every `--every`-th has the
tag and the property that is asked for. The leader's store is pulled from the first to the last message, over and over.
Told are microseconds of CPU time for each message that is passed or brought, the best of `--rounds`, and the ratio to
pulls by tag, which read no record that they do not bring.

    .venv/bin/python benchmarks/filtered_pulls.py [--every 10] [--body-size 128]
"""

import argparse
import tempfile
import time
from pathlib import Path

from micro_hot_path import MicroGroup

from message.tags import build_subscription
from remoting.codes import RequestCode
from remoting.frame.command import request
from store.filter.message_filter import MessageFilter, filter_of

BATCH = 64
SQL = (
    ("SQL92, tags", "TAGS = 'wanted'"),
    ("SQL92, one number", "price > 100"),
    ("SQL92, five terms", "price BETWEEN 100 AND 500 AND color IN ('red', 'blue') AND (size IS NULL OR size <> 'L')"),
    ("SQL92, nothing wanted", "price > 1000"),
)  # fmt: skip


def sends(every: int, body_size: int) -> bytes:
    """A read of BATCH sends to one queue."""
    commands = []
    for number in range(BATCH):
        is_wanted = number % every == 0
        properties = {
            "TAGS": "wanted" if is_wanted else "other",
            "price": "250" if is_wanted else "20",
            "color": "red",
            "UNIQ_KEY": f"0A0B0C0D00000000{number:016X}",
        }
        text = "".join(f"{name}\x01{value}\x02" for name, value in properties.items())
        fields = {
            "a": "p", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0",
            "i": text, "j": "0", "k": "false", "m": "false",
        }  # fmt: skip
        commands.append(
            request(RequestCode.SEND_MESSAGE_V2, fields, bytes(body_size), opaque=number).encode()
        )
    return b"".join(commands)


def pull_all(group: MicroGroup, wanted: MessageFilter | None, count: int) -> tuple[int, int, int]:
    """CPU time (ns), how many messages came, how many pulls there were."""
    reads = group.leader.store.reads
    offset = received = pulls = 0
    began = time.process_time_ns()
    while offset < count:
        result = reads.get_message("T", 0, offset, 32, 262_144, wanted)
        offset = result.next_begin_offset
        received += len(result.buffers)
        pulls += 1
    return time.process_time_ns() - began, received, pulls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--body-size", type=int, default=128)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    parent = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        group = MicroGroup(Path(directory), sync=False)
        data = sends(options.every, options.body_size)
        for _ in range(options.messages // BATCH):
            group.round(data)
        group.settle()
        count = group.leader.store.reads.max_offset("T", 0)
        assert count == options.messages // BATCH * BATCH, "what was sent is stored"
        kinds = [("all", filter_of(build_subscription("T", "*")))]
        kinds.append(("tag", filter_of(build_subscription("T", "wanted"))))
        kinds += [(name, filter_of(build_subscription("T", text, "SQL92"))) for name, text in SQL]
        print("pulls; brought; us per message of the queue; ratio to pulls by tag")
        best = {}
        for name, wanted in kinds:
            runs = [pull_all(group, wanted, count) for _ in range(options.rounds)]
            best[name] = min(runs)
        for name, (spent_ns, received, pulls) in best.items():
            ratio = spent_ns / best["tag"][0]
            print(f"{name:<24} {pulls:>6} {received:>6} {spent_ns / count / 1000:8.2f} {ratio:8.2f}")


if __name__ == "__main__":
    main()
