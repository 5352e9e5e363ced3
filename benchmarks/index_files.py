"""What IndexFiles cost beside everything else that a broker does with a message, as one ratio of one run.

Three whole brokers in this process, as in micro_hot_path.py, take messages with two keys each while the leader's
IndexFiles stand still; then they catch up from the newest entries in memory, and so on. Told are: microseconds per
message of the leader without them, of them in the event loop and in the thread of their jobs, the ratio of the
leader with them to the leader without, keys per second were there nothing else to do, and the longest that one tick
takes.
All is CPU time. In a running broker other threads wait for the interpreter besides; benchmarks/at_scale.py shows that.

    .venv/bin/python benchmarks/index_files.py [--profile index.prof]
"""

import argparse
import cProfile
import tempfile
import time
from pathlib import Path
from statistics import median
from unittest.mock import patch

from micro_hot_path import MicroGroup, sends

from remoting.frame.command import SerializeType

BATCH = 64
ROUNDS = 32  # between two times that the index catches up
BODY_SIZE = 128
KEYS_PER_MESSAGE = 2


class IndexedGroup:
    def __init__(self, directory: Path, profile: cProfile.Profile | None) -> None:
        with _standing_still():
            self.group = MicroGroup(directory, sync=False)
        self.group.settle()
        self.profile = profile
        self.tick_ns: list[int] = []
        self.job_ns = 0

    def send(self, data: bytes) -> list[int]:
        """ns of the leader, round by round."""
        with _standing_still():
            return [self.group.round(data)[0] for _ in range(ROUNDS)]

    def catch_up(self) -> None:
        group, leader, clock = self.group, self.group.leader, time.thread_time_ns
        while leader.store.index.behind > 0:
            group.now_ms += 10
            start = clock()
            self._profiled(lambda: leader.store.index.tick(group.now_ms))
            middle = clock()
            leader_is_busy = bool(leader.todo)
            self._profiled(leader.run)
            if leader_is_busy:
                self.job_ns += clock() - middle
            self.tick_ns.append(middle - start)

    def flush(self) -> None:
        """So that each key has been brought to the files at the end."""
        start = time.thread_time_ns()
        self._profiled(lambda: self.group.leader.store.index.flush(self.group.now_ms))
        self.job_ns += time.thread_time_ns() - start

    def _profiled(self, call) -> None:  # type: ignore[no-untyped-def]
        if self.profile is None:
            call()
        else:
            self.profile.runcall(call)


def _standing_still():  # type: ignore[no-untyped-def]
    return patch.multiple("store.index.index_service", ENTRIES_PER_TICK=0, ENTRIES_PER_IDLE_TICK=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=131_072, help="of two keys each (default 131072)")
    parser.add_argument("--directory", help="default: memory, so that no disk has a say")
    parser.add_argument("--profile", help="write a cProfile of the index here")
    options = parser.parse_args()
    parent = options.directory or ("/dev/shm" if Path("/dev/shm").is_dir() else None)
    profile = cProfile.Profile() if options.profile else None
    data = sends(BATCH, SerializeType.JSON, BODY_SIZE)
    rounds: list[int] = []
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        indexed = IndexedGroup(Path(directory), profile)
        while len(rounds) * BATCH < options.messages:
            rounds += indexed.send(data)
            indexed.catch_up()
        indexed.flush()
    count = len(rounds) * BATCH
    without = median(rounds) / BATCH / 1000
    loop, thread = sum(indexed.tick_ns) / count / 1000, indexed.job_ns / count / 1000
    print(f"{count} messages of {BODY_SIZE} bytes with {KEYS_PER_MESSAGE} keys; us per message of the leader")
    print(f"without IndexFiles      {without:.1f}")
    print(f"IndexFiles, event loop  {loop:.1f}")
    print(f"IndexFiles, their thread {thread:.1f}")
    print(f"with them / without     {(without + loop + thread) / without:.2f}")
    print(f"keys per second        {KEYS_PER_MESSAGE * 1e6 / (loop + thread):,.0f}")
    ticks = sorted(indexed.tick_ns)
    print(f"one tick, median / worst  {median(ticks) / 1000:.0f} / {ticks[-1] / 1000:.0f} us")
    if profile is not None:
        profile.dump_stats(options.profile)


if __name__ == "__main__":
    main()
