"""Clients that ask leaders and followers for the end of a queue, and remember what they knew when they asked."""

from functools import partial
from random import Random

from dledger.core.output import Role
from simulator.harness.options import Options
from simulator.harness.oracle import Oracle, QueueKey, ReadIndexRead
from simulator.invariants.invariant import ViolationError
from simulator.world.event_loop import EventLoop
from simulator.world.process import Process
from simulator.world.sim_member import SimMember
from simulator.world.workload import TOPICS


class ReadIndexReads:
    """Invariant: `answered` and `refused` count each read once, and what was read is told to the oracle."""

    def __init__(
        self, loop: EventLoop, members: list[SimMember], oracle: Oracle, options: Options, random: Random
    ) -> None:
        self.answered = 0
        self.answered_by_followers = 0
        self.refused = 0
        self.is_running = True
        self._loop = loop
        self._members = members
        self._oracle = oracle
        self._options = options
        self._random = random
        self._acknowledged_count = 0
        self._acknowledged_index = -1
        self._acknowledged_ends: dict[QueueKey, int] = {}

    def start(self) -> None:
        if self._options.read_interval_us:
            self._loop.call_later(0, self._act)

    def _act(self) -> None:
        if not self.is_running:
            return
        random = self._random
        self._loop.call_later(int(random.expovariate(1 / self._options.read_interval_us)) + 1, self._act)
        leading = [
            member
            for member in self._members
            if member.process is not None and member.process.replica.member.role is Role.LEADER
        ]
        # Of two that lead, one knows less.
        member = random.choice(leading if leading and random.random() < 0.6 else self._members)
        key = random.choice(TOPICS), random.randrange(self._options.queue_count)
        if member.process is not None:
            member.call(self._ask, member, member.process, key)

    def _ask(self, member: SimMember, process: Process, key: QueueKey) -> None:
        if process.is_stopping:
            return
        self._learn()
        read = ReadIndexRead(
            member.member_id, self._acknowledged_index, key, self._acknowledged_ends.get(key, 0)
        )
        is_leader = process.replica.member.role is Role.LEADER
        process.store.read_index_waits.ask(
            partial(self._told, member, process, read, is_leader), member.now_ms()
        )

    def _learn(self) -> None:
        for batch in self._oracle.acknowledged[self._acknowledged_count :]:
            self._acknowledged_count += 1
            self._acknowledged_index = max(self._acknowledged_index, batch.last_index)
            for key, queue_offset, _ in batch.places:
                self._acknowledged_ends[key] = max(self._acknowledged_ends.get(key, 0), queue_offset + 1)

    def _told(
        self, member: SimMember, process: Process, read: ReadIndexRead, is_leader: bool, refusal: str | None
    ) -> None:
        member.trace.add(self._loop.now_us, "{} read of {} {}", member.member_id, read.key, refusal)
        if read.is_told:
            raise ViolationError("read_is_told_once", f"{read} has a second outcome: {refusal}")
        read.is_told = True
        if refusal is not None:
            self.refused += 1
            return
        self.answered += 1
        self.answered_by_followers += not is_leader
        topic, queue_id = read.key
        read.applied_index = process.store.reads.applied_index
        read.max_offset = process.store.reads.max_offset(topic.decode(), queue_id)
        self._oracle.read_index_reads.append(read)
