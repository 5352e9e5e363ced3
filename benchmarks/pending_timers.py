"""What timer messages cost that wait: memory, and the time after a restart until they can be delivered.

The store of a group of one, over real files, gets `--count` timer messages with bodies of 128 bytes, due in one hour to
a day, and is stopped. Another process opens it and has it do what it wants to do, as a broker without other work would.
Told are: when it serves, when it knows of each message when that is due (no timer message is delivered before), the CPU
time of that for each message, the longest step, which all else waits for, and the memory of the process before and
after. No network.

    .venv/bin/python benchmarks/pending_timers.py [--count 500000] [--soon] [--profile index.prof]
"""

import argparse
import cProfile
import resource
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from random import Random

from broker.config.component_configs import dledger_config, store_config
from broker.config.config_file import read_broker_config
from disk.real_disk import RealDisk
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.replica import Replica
from message.properties import encode_properties
from remoting.configuration import parse_properties
from store.message_store import MessageStore
from store.put_message import PutBatch, PutMessage, PutRefusal
from store.services.timer_message import slot_of, timed

CONF = """
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911
dLegerSelfId=n0
brokerName=RaftNode00
brokerIP1=127.0.0.1
"""
BORN_HOST = bytes([127, 0, 0, 1, 0, 0, 42, 159])
FAR_MS = 3_600_000, 24 * 3_600_000
SOON_MS = 500_000, 600_000  # all of it is in memory then
BATCH = 64
TICK_S = 0.01  # at most so long after the one before, as at a broker that is busy


class Member:
    """The only member of a group; what it wants done outside of itself waits in `todo`."""

    def __init__(self, directory: str) -> None:
        self.todo: deque[Callable[[], object]] = deque()
        self._next_tick = 0.0
        conf = f"{CONF}storePathRootDir={directory}\nflushDiskType=ASYNC_FLUSH\n"
        config = read_broker_config(parse_properties(conf, "broker.conf"), "broker.conf")[0]
        disk = RealDisk()
        ledger_config = dledger_config(config)
        self.store = MessageStore(store_config(config), disk, self)
        quorum_state = QuorumState.load(disk, ledger_config.directory)
        log_store = LogStore.open(disk, ledger_config.log_config, self.store.is_sound_body)
        self.replica = Replica(
            ledger_config, log_store, quorum_state, self.store, _ReplicaRuntime(self), Random(1), self.clock()
        )
        self.store.start(self.replica, self.clock())
        self.timers = self.store.services.timer_message_service

    def clock(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000

    def call_soon(self, step: Callable[[], None]) -> None:
        self.todo.append(step)

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self.todo.append(step)

    def reput_wanted(self) -> None:
        self.todo.append(lambda: self.store.reput_step(self.clock()))

    def submit(self, job: DiskJob) -> None:
        self.todo.append(lambda: self.run_job(job, self.store.job_done))

    def run_job(self, job: DiskJob, job_done: Callable[[DiskJob, Exception | None, int], None]) -> None:
        job.run()
        job_done(job, None, self.clock())

    def run_until(self, condition: Callable[[], bool]) -> float:
        """Returns the longest step, s."""
        longest = 0.0
        while not condition():
            start = time.perf_counter()
            if self.todo and start < self._next_tick:
                self.todo.popleft()()
            else:
                self._next_tick = start + TICK_S
                self.replica.tick(self.clock())
                self.store.tick(self.clock())
            longest = max(longest, time.perf_counter() - start)
        return longest

    def put(self, messages: list[PutMessage]) -> None:
        outcomes: list[PutBatch | PutRefusal] = []
        self.store.gather.add(
            0,
            messages,
            [],
            [],
            lambda source, requests, outcome, first: outcomes.append(outcome),
            self.clock(),
        )
        self.run_until(lambda: bool(outcomes))
        assert isinstance(outcomes[0], PutBatch), outcomes

    def stop(self) -> None:
        self.replica.stop(self.clock())
        self.run_until(lambda: self.replica.idle and not self.store.is_busy)
        self.store.stop()
        self.replica.close(clean=True)
        self.store.close(clean=True)


class _ReplicaRuntime:
    def __init__(self, member: Member) -> None:
        self._member = member
        self.call_soon = member.call_soon

    def submit(self, job: DiskJob) -> None:
        member = self._member
        member.todo.append(lambda: member.run_job(job, member.replica.job_done))

    def send(self, *arguments: object) -> None:
        raise AssertionError(arguments)

    def drop_connection(self, *arguments: object) -> None:
        raise AssertionError(arguments)

    def failed(self, reason: str) -> None:
        raise AssertionError(reason)


def timer(number: int, deliver_ms: int, now_ms: int) -> PutMessage:
    said = {
        "UNIQ_KEY": f"7F0000010000000000000000{number:08X}",
        "TIMER_DELIVER_MS": str(deliver_ms),
        "WAIT": "true",
        "TAGS": "A",
    }
    message = PutMessage(b"T", number % 4, bytes(128), encode_properties(said), 65, now_ms, BORN_HOST)
    return timed(message, slot_of(deliver_ms, 1000))


def fill(directory: str, count: int, due_ms: tuple[int, int]) -> None:
    member, random = Member(directory), Random(1)
    member.run_until(lambda: member.store.serving)
    now_ms = member.clock()
    for begin in range(0, count, BATCH):
        numbers = range(begin, min(begin + BATCH, count))
        member.put([timer(number, now_ms + random.randrange(*due_ms), now_ms) for number in numbers])
    member.stop()


def rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / (1 << 20)


def measure(directory: str, count: int, profile_path: str | None) -> None:
    start = time.perf_counter()
    member = Member(directory)
    member.run_until(lambda: member.store.serving)
    serves_s = time.perf_counter() - start
    before_mib = rss_mib()
    start, cpu_start = time.perf_counter(), time.process_time()
    profile = cProfile.Profile() if profile_path else None
    with profile or nullcontext():
        longest = member.run_until(lambda: member.timers.index.is_ready(member.clock()))
    known_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
    assert member.timers.index.counts == {"T": count}
    after_mib = rss_mib()
    print(f"serves after {serves_s:.2f} s, at {before_mib:.0f} MiB")
    print(f"knows all {known_s:.2f} s later: {cpu_s / count * 1e6:.1f} us of CPU time for each message")
    print(f"longest step {longest * 1e3:.0f} ms")
    print(
        f"{after_mib:.0f} MiB then: {(after_mib - before_mib) * (1 << 20) / count:.0f} bytes for each message"
    )
    if profile and profile_path:
        profile.dump_stats(profile_path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=500_000, help="timer messages that wait")
    parser.add_argument(
        "--soon", action="store_true", help="all are due in some eight minutes, so are in memory"
    )
    parser.add_argument("--directory", help="a store that an earlier run has filled; default: a new one")
    parser.add_argument("--fill-only", action="store_true", help="fill the store in --directory, and no more")
    parser.add_argument("--measure-only", action="store_true", help="open the store in --directory")
    parser.add_argument("--profile", help="write a cProfile of the time from serving to knowing all here")
    options = parser.parse_args()
    if options.fill_only:
        fill(options.directory, options.count, SOON_MS if options.soon else FAR_MS)
    elif options.measure_only:
        measure(options.directory, options.count, options.profile)
    else:
        with tempfile.TemporaryDirectory() as directory:
            for step in ("--fill-only", "--measure-only"):
                command = [sys.executable, __file__, *sys.argv[1:], "--directory", directory, step]
                subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
