"""Producers of transactions: they prepare messages, say how each ends, once or again, and answer when they are asked.

How a transaction ends is drawn when its message is prepared. Producers say it to whoever they take for the leader, or
forget to; what they are told, they believe. Some say the contrary later, which must change nothing any more.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

from simulator.harness.options import Options
from simulator.harness.oracle import Oracle, uid_of
from simulator.invariants.invariant import ViolationError
from simulator.world.event_loop import EventLoop
from simulator.world.process import Process
from simulator.world.sim_member import SimMember
from store.errors import MessageDamagedError
from store.put_message import PutMessage
from store.services.half_message import HalfMessage, prepared
from store.services.transaction_service import EndStatus

_ANSWER_US_MAX = 50_000
_AGAIN_US_MAX = 5_000
_LATER_US_MAX = 3_000_000


class Transactions:
    def __init__(
        self, loop: EventLoop, members: list[SimMember], oracle: Oracle, options: Options, random: Random
    ) -> None:
        self.is_running = True  # until then producers forget to say things, and are away
        self.ended_count = 0  # as producers were told
        self._loop = loop
        self._members = members
        self._oracle = oracle
        self._options = options
        self._random = random

    def is_prepared(self) -> bool:
        """Whether the next batch is one of transactions."""
        return self._options.transactions > 0 and self._random.random() < self._options.transactions

    def prepared(self, uids: range, messages: list[PutMessage]) -> list[PutMessage]:
        for uid in uids:
            if self._random.random() < 0.6:
                self._oracle.to_commit.add(uid)
        return [prepared(message) for message in messages]

    def acknowledged(self, member: SimMember, uid: int, phy_offset: int) -> None:
        """A message is prepared: its producer says how it ends, or does not get round to it."""
        if self._random.random() < 0.7:
            process = member.process
            assert process is not None, "it has just acknowledged"
            delay_us = self._random.randint(0, _ANSWER_US_MAX)
            self._end_later(member, process, uid, phy_offset, delay_us, uid in self._oracle.to_commit)
            if self._random.random() < 0.3:  # as a client does that has heard no answer
                delay_us += self._random.randint(0, _AGAIN_US_MAX)
                self._end_later(member, process, uid, phy_offset, delay_us, uid in self._oracle.to_commit)

    def join(self, member: SimMember, process: Process) -> None:
        """Producers are connected to it."""
        process.store.services.transaction_service.checks.producers = _Producers(self, member, process)

    def is_anybody_there(self) -> bool:
        return not self.is_running or self._random.random() < 0.8

    def asked(self, member: SimMember, process: Process, half: HalfMessage) -> None:
        if self.is_running and self._random.random() < 0.3:
            return  # the question or the answer is lost
        uid, delay_us = uid_of(half.message.body), self._random.randint(0, _ANSWER_US_MAX)
        phy_offset, is_commit = half.message.phy_offset, uid in self._oracle.to_commit
        self._end_later(member, process, uid, phy_offset, delay_us, is_commit)

    def check_ended(self) -> None:
        """Raises ViolationError, once no half is pending."""
        oracle = self._oracle
        for uid in oracle.halves:
            if uid in oracle.to_commit and uid not in oracle.committed and uid not in oracle.given_up:
                raise ViolationError(
                    "transaction_once",
                    f"the transaction of message {uid} has ended, its producer said commit, and no consumer got it",
                )

    def _end_later(
        self,
        member: SimMember,
        process: Process,
        uid: int,
        phy_offset: int,
        delay_us: int,
        is_commit: bool,
    ) -> None:
        self._loop.call_later(delay_us, self._call_end, member, process, uid, phy_offset, is_commit)

    def _call_end(
        self, member: SimMember, process: Process, uid: int, phy_offset: int, is_commit: bool
    ) -> None:
        if member.process is process and not process.is_stopping:
            member.call(self._end, member, process, uid, phy_offset, is_commit)

    def _end(self, member: SimMember, process: Process, uid: int, phy_offset: int, is_commit: bool) -> None:
        transactions = process.store.services.transaction_service
        half = None
        with suppress(MessageDamagedError):
            half = transactions.half_at(phy_offset)
        if half is None or not process.store.serving:
            return
        is_true = is_commit == (uid in self._oracle.to_commit)
        if is_true and is_commit:
            self._oracle.said_commit.add(uid)

        def ended(status: EndStatus) -> None:
            verdict = "commit" if is_commit else "roll back"
            member.trace.add(self._loop.now_us, "{} {} {} {}", member.member_id, verdict, uid, status.name)
            if status is EndStatus.ENDED:
                self.ended_count += 1
                self._oracle.told_ended.add(uid)
                if self.is_running and self._random.random() < 0.4:
                    self._say_again(uid, phy_offset)

        end = transactions.commit if is_commit else transactions.roll_back
        end(half, ended)

    def _say_again(self, uid: int, phy_offset: int) -> None:
        """To anybody, and maybe the contrary: it has ended."""
        member = self._random.choice(self._members)
        if member.process is not None:
            is_commit = self._random.random() < 0.5
            delay_us = self._random.randint(0, _LATER_US_MAX)
            self._end_later(member, member.process, uid, phy_offset, delay_us, is_commit)


class _Producers:
    """Of one life of a member."""

    def __init__(self, transactions: Transactions, member: SimMember, process: Process) -> None:
        self._transactions = transactions
        self._member = member
        self._process = process

    def has_producer(self, group: str) -> bool:
        return self._transactions.is_anybody_there()

    def ask(self, half: HalfMessage, check_times: int) -> bool:
        if not self._transactions.is_anybody_there():
            return False
        self._transactions.asked(self._member, self._process, half)
        return True
