"""No timer fires before its time, however clocks are set: time here is the simulator's own, which no member knows.

A follower campaigns against a leader that it can reach only after that leader's silence, and a delayed message is
delivered only after its delay, but for what well-kept clocks differ by.
"""

from dledger.core.output import Role
from simulator.harness.options import DELAY_LEVELS
from simulator.harness.oracle import Oracle
from simulator.invariants.invariant import MemberView

# Members count in whole ms.
_ROUNDING_US = 1_000


class NoTimerEarly:
    name = "no_timer_early"

    def __init__(self, election_timeout_ms_min: int, clock_difference_ms: int | None) -> None:
        """`clock_difference_ms`: what the clocks of two processes may differ by; None: by anything."""
        self._silence_us = election_timeout_ms_min * 1_000 - _ROUNDING_US
        self._difference_ms = clock_difference_ms
        self._roles: dict[tuple[str, int], Role] = {}
        self._message_count = 0

    def check(self, member: MemberView, oracle: Oracle) -> str | None:
        key, role = (member.member_id, member.life), member.role
        before = self._roles.get(key)
        self._roles[key] = role
        if before is Role.FOLLOWER and role is Role.CANDIDATE:
            heard_us = member.leader_heard_us
            if heard_us is not None and member.now_us - heard_us < self._silence_us:
                return (
                    f"{member.member_id} campaigns {member.now_us - heard_us} us after it heard the leader of term "
                    f"{member.curr_term}, to which it is connected"
                )
        return self._fault_of_deliveries(member, oracle) if self._difference_ms is not None else None

    def _fault_of_deliveries(self, member: MemberView, oracle: Oracle) -> str | None:
        assert self._difference_ms is not None, "asked only where clocks are well kept"
        for message in oracle.messages[self._message_count :]:
            self._message_count += 1
            waiting = oracle.waiting.get(message.uid)
            put_us = oracle.put_us.get(message.uid)
            if not message.is_delivery or waiting is None or put_us is None:
                continue
            delay_ms = DELAY_LEVELS[waiting.queue_id + 1]
            waited_us = member.now_us - put_us
            if waited_us < (delay_ms - self._difference_ms) * 1_000 - _ROUNDING_US:
                return (
                    f"message {message.uid} was delayed by {delay_ms} ms and delivered after {waited_us} us"
                )
        return None
