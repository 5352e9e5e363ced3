"""Which sends share an append, in which order, and how each ends: with a commit log that is told what to say."""

from collections.abc import Callable, Sequence

import pytest

from dledger.core.output import AppendStatus
from dledger.entry import Index
from dledger.log.errors import LedgerError
from store.put_gather import ROUND_SIZE_MAX, SLOW_ROUND_US, WATCH_MS, PutGather
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus

WAIT_MS = 2_500
REFUSED = PutRefusal(PutStatus.SERVICE_NOT_AVAILABLE, "not now")
BUSY = PutRefusal(PutStatus.SYSTEM_BUSY, "full")


class Rounds:
    """The commit log and the event loop. A message of size 0 cannot be stored."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.us = 1_000_000
        self.gather = PutGather(self, self, WAIT_MS)
        self.appended: list[list[str]] = []
        self.ends: dict[str, list[tuple[int, int]] | PutStatus] = {}
        self.failing = ""  # a request whose end cannot be told
        self.told: list[str] = []
        self.refusal: PutRefusal | None = None
        self.refuses_mixed = False
        self.gathered_size = self.gathered_count = 0
        self.has_room = True
        self._done: list[Callable[[AppendStatus], None]] = []
        self._soon: list[Callable[[], None]] = []
        self._later: list[tuple[int, Callable[[], None]]] = []

    # -- Appender and LoopRuntime

    def check_messages(
        self, messages: Sequence[PutMessage]
    ) -> tuple[list[int], dict[int, PutRefusal]] | PutRefusal:
        if self.refusal is not None:
            return self.refusal
        sizes = [len(message.body) for message in messages]
        fault = PutRefusal(PutStatus.MESSAGE_ILLEGAL, "empty")
        return sizes, {number: fault for number, size in enumerate(sizes) if size == 0}

    def check_room(self, size: int, count: int) -> PutRefusal | None:
        return None if self.has_room else BUSY

    def append_messages(
        self,
        messages: Sequence[PutMessage],
        sizes: Sequence[int],
        on_done: Callable[[AppendStatus], None],
        now_ms: int,
    ) -> PutBatch | PutRefusal:
        assert [len(message.body) for message in messages] == list(sizes)
        if self.refusal is not None:
            return self.refusal
        if self.refuses_mixed and len({message.queue_id for message in messages}) > 1:
            return PutRefusal(PutStatus.MESSAGE_ILLEGAL, "two kinds")
        first = sum(map(len, self.appended))
        self.appended.append([message.topic.decode() for message in messages])
        self._done.append(on_done)
        results = [(100 * (first + number), first + number) for number in range(len(messages))]
        return PutBatch(results, now_ms, Index(first), Index(first + len(messages) - 1))

    def clock(self) -> int:
        return self.now_ms

    def monotonic_us(self) -> int:
        return self.us

    def call_soon(self, step: Callable[[], None]) -> None:
        self._soon.append(step)

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self._later.append((self.now_ms + delay_ms, step))

    # -- driving

    def read(self, source: int, *requests: str, size: int = 1, queue_id: int = 0) -> None:
        """One read with these requests; "a+b" is a request of two messages."""
        names = [request.split("+") for request in requests]
        messages = [
            PutMessage(name.encode(), queue_id, b"x" * (0 if name == "bad" else size), b"", 0, 0, b"")
            for request in names
            for name in request
        ]

        counts = [len(request) for request in names]
        self.gather.add(source, messages, requests, counts, self._ended, self.now_ms)

    def _ended(
        self, source: int, requests: Sequence[str], outcome: PutBatch | PutRefusal, first: int
    ) -> None:
        for request in requests:
            assert request not in self.told, "told once"
            self.told.append(request)
            if isinstance(outcome, PutRefusal):
                self.ends[request] = outcome.status
                continue
            end = first + 1 + request.count("+")
            self.ends[request] = outcome.results[first:end]
            first = end
        if self.failing in requests:
            raise ValueError(self.failing)

    def end_turn(self) -> None:
        soon, self._soon = self._soon, []
        for step in soon:
            step()

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms
        self.us = 1_000 * self.now_ms
        due = [step for due_ms, step in self._later if due_ms <= self.now_ms]
        self._later = [timer for timer in self._later if timer[0] > self.now_ms]
        for step in due:
            step()
        self.gather.tick(self.now_ms)

    def done(self, status: AppendStatus = AppendStatus.SUCCESS) -> None:
        """The oldest round is."""
        self._done.pop(0)(status)


@pytest.fixture
def rounds() -> Rounds:
    return Rounds()


def test_reads_of_one_turn_are_one_append(rounds: Rounds) -> None:
    rounds.read(1, "a", "b+c")
    rounds.read(2, "d")
    assert rounds.appended == []
    rounds.end_turn()
    assert rounds.appended == [["a", "b", "c", "d"]]
    rounds.done()
    assert rounds.ends == {"a": [(0, 0)], "b+c": [(100, 1), (200, 2)], "d": [(300, 3)]}


def test_what_arrives_while_a_round_is_out_is_one_append_when_it_ends(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    for request in "bcd":
        rounds.read(2, request)
        rounds.end_turn()
    assert rounds.appended == [["a"]]
    rounds.done()
    assert rounds.appended == [["a"], ["b", "c", "d"]]


def test_the_next_round_starts_before_the_last_one_is_answered(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    rounds.read(2, "b")
    told_at_append: list[list[str]] = []
    old = rounds.append_messages

    def append_messages(*arguments: object) -> PutBatch | PutRefusal:
        told_at_append.append(list(rounds.told))
        return old(*arguments)  # type: ignore[arg-type]

    rounds.append_messages = append_messages  # type: ignore[method-assign]
    rounds.done()
    assert told_at_append == [[]]
    assert rounds.told == ["a"]


def test_another_round_starts_beside_a_slow_one(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    rounds.read(2, "b")
    rounds.end_turn()
    rounds.pass_ms(WATCH_MS)
    assert rounds.appended == [["a"], ["b"]]


def test_no_other_round_starts_beside_one_that_has_just_begun(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    rounds.read(2, "b")
    rounds.end_turn()
    rounds.us = 1_000 * rounds.now_ms + 500
    rounds.done()
    rounds.read(3, "c")
    rounds.end_turn()
    rounds.pass_ms(WATCH_MS)
    assert rounds.appended == [["a"], ["b"]]
    rounds.pass_ms(WATCH_MS)
    assert rounds.appended == [["a"], ["b"], ["c"]]


def test_what_arrives_beside_a_slow_round_starts_another_one_at_once(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    rounds.us += SLOW_ROUND_US
    rounds.read(2, "b")
    rounds.end_turn()
    assert rounds.appended == [["a"], ["b"]]


def test_requests_of_a_connection_keep_their_order(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.read(2, "b")
    rounds.read(1, "c")
    rounds.end_turn()
    (appended,) = rounds.appended
    assert appended.index("a") < appended.index("c")


def test_an_illegal_message_costs_its_own_request_and_no_other(rounds: Rounds) -> None:
    rounds.read(1, "a", "b+bad", "c")
    rounds.read(2, "d")
    assert rounds.ends == {"b+bad": PutStatus.MESSAGE_ILLEGAL}
    rounds.end_turn()
    assert rounds.appended == [["a", "c", "d"]]
    rounds.done()
    assert rounds.told == ["b+bad", "a", "c", "d"]


def test_a_round_that_is_refused_as_illegal_is_appended_request_by_request(rounds: Rounds) -> None:
    rounds.refuses_mixed = True
    rounds.read(1, "a", "b+c")
    rounds.read(2, "d", queue_id=1)
    rounds.end_turn()
    assert rounds.appended == [["a"], ["b", "c"], ["d"]]
    for _ in range(3):
        rounds.done()
    assert rounds.told == ["a", "b+c", "d"]


def test_a_read_that_is_refused_is_told_at_once(rounds: Rounds) -> None:
    rounds.refusal = REFUSED
    rounds.read(1, "a", "b")
    assert rounds.ends == {"a": REFUSED.status, "b": REFUSED.status}
    rounds.end_turn()
    assert rounds.appended == []


def test_a_round_that_is_refused_ends_all_of_its_requests(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.read(2, "b")
    rounds.refusal = REFUSED
    rounds.end_turn()
    assert rounds.ends == {"a": REFUSED.status, "b": REFUSED.status}


def test_a_large_sender_and_a_small_one_share_a_round(rounds: Rounds) -> None:
    rounds.read(1, "first")
    rounds.end_turn()
    rounds.read(1, *(f"large{number}" for number in range(12)), size=ROUND_SIZE_MAX // 4)
    rounds.read(2, "small")
    rounds.done()
    assert rounds.appended[1] == ["large0", "large1", "large2", "large3", "small"], (
        "of which it needs no half"
    )
    while len(rounds.told) < 14:
        rounds.done()
    assert [name for appended in rounds.appended[1:] for name in appended if name != "small"] == [
        f"large{number}" for number in range(12)
    ]


def test_two_large_senders_have_half_a_round_each(rounds: Rounds) -> None:
    rounds.read(1, "first")
    rounds.end_turn()
    for source, name in ((1, "a"), (2, "b")):
        rounds.read(source, *(f"{name}{number}" for number in range(6)), size=ROUND_SIZE_MAX // 4)
    rounds.done()
    assert rounds.appended[1] == ["a0", "a1", "b0", "b1"]


def test_a_full_round_does_not_wait_for_the_end_of_the_turn(rounds: Rounds) -> None:
    rounds.read(1, "a", size=ROUND_SIZE_MAX - 1)
    assert rounds.appended == []
    rounds.read(2, "b")
    assert rounds.appended == [["a", "b"]]


def test_what_has_no_room_beside_what_waits_is_refused_at_once(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    rounds.read(2, "b", "c", size=5)
    assert (rounds.gathered_size, rounds.gathered_count) == (10, 2)
    rounds.has_room = False
    rounds.read(3, "d")
    assert rounds.ends == {"d": BUSY.status}
    rounds.done()
    assert rounds.appended == [["a"], ["b", "c"]]
    assert (rounds.gathered_size, rounds.gathered_count) == (0, 0)


def test_messages_are_kept_no_longer_than_until_they_are_in_the_log(rounds: Rounds) -> None:
    rounds.read(1, "a", "b")
    rounds.read(2, "c")
    rounds.end_turn()
    assert [part.messages for part in rounds.gather.rounds[0].parts] == [(), ()]


def test_an_end_that_cannot_be_told_leaves_no_other_one_untold(rounds: Rounds) -> None:
    rounds.failing = "a"
    rounds.read(1, "a")
    rounds.read(2, "b")
    rounds.end_turn()
    with pytest.raises(ValueError, match="a"):
        rounds.done()
    assert rounds.ends == {"a": [(0, 0)], "b": [(100, 1)]}


def test_a_request_that_is_larger_than_a_round_goes_as_a_whole(rounds: Rounds) -> None:
    rounds.read(1, "a+b", "c", size=ROUND_SIZE_MAX)
    rounds.end_turn()
    assert rounds.appended == [["a", "b"]]
    rounds.done()
    assert rounds.appended == [["a", "b"], ["c"]]


def test_what_is_late_in_no_log_is_refused_and_what_is_late_in_one_is_unknown(rounds: Rounds) -> None:
    rounds.read(1, "in the log", size=ROUND_SIZE_MAX)
    rounds.end_turn()
    rounds.read(1, "next", size=ROUND_SIZE_MAX)
    rounds.read(1, "in no log")
    rounds.now_ms += WAIT_MS
    rounds.gather.tick(rounds.now_ms)
    assert rounds.ends == {
        "next": PutStatus.SERVICE_NOT_AVAILABLE,
        "in no log": PutStatus.SERVICE_NOT_AVAILABLE,
        "in the log": PutStatus.UNKNOWN,
    }
    rounds.done()
    assert len(rounds.told) == 3


def test_time_counts_from_the_arrival_of_each_request(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    rounds.read(1, "b")
    rounds.now_ms += WAIT_MS - 1
    rounds.read(2, "c")
    rounds.done()
    assert rounds.appended == [["a"], ["b", "c"]]
    rounds.now_ms += 1
    rounds.gather.tick(rounds.now_ms)
    assert rounds.ends["b"] is PutStatus.UNKNOWN
    assert "c" not in rounds.ends
    rounds.done()
    assert rounds.ends["c"] == [(200, 2)]


def test_what_waits_is_appended_at_once_where_something_else_must_come_after_it(rounds: Rounds) -> None:
    rounds.read(1, "a", "b", "c", size=ROUND_SIZE_MAX)
    rounds.gather.append_waiting()
    assert rounds.appended == [["a"], ["b"], ["c"]]
    rounds.end_turn()
    assert len(rounds.appended) == 3


def test_a_member_that_serves_no_more_refuses_what_waits(rounds: Rounds) -> None:
    rounds.read(1, "a")
    rounds.end_turn()
    rounds.read(2, "b")
    rounds.gather.refuse_waiting(REFUSED)
    assert rounds.ends == {"b": REFUSED.status}
    rounds.done(AppendStatus.UNKNOWN)
    assert rounds.ends == {"a": PutStatus.UNKNOWN, "b": REFUSED.status}
    assert rounds.appended == [["a"]]


def test_a_round_whose_disk_fails_after_the_log_took_it_is_told_once(rounds: Rounds) -> None:
    """The append is refused as unknown, and then the failing member ends it as well."""
    old = rounds.append_messages

    def append_messages(*arguments: object) -> PutBatch | PutRefusal:
        old(*arguments)  # type: ignore[arg-type]
        return PutRefusal(PutStatus.UNKNOWN, "the disk failed")

    rounds.append_messages = append_messages  # type: ignore[method-assign]
    rounds.read(1, "a")
    rounds.end_turn()
    assert rounds.ends == {"a": PutStatus.UNKNOWN}
    rounds.done(AppendStatus.UNKNOWN)
    assert rounds.told == ["a"]


def test_a_round_whose_append_raises_is_told_when_the_member_ends_it(rounds: Rounds) -> None:
    old = rounds.append_messages

    def append_messages(*arguments: object) -> PutBatch | PutRefusal:
        old(*arguments)  # type: ignore[arg-type]
        raise LedgerError("damaged")

    rounds.append_messages = append_messages  # type: ignore[method-assign]
    rounds.read(1, "a")
    with pytest.raises(LedgerError):
        rounds.end_turn()
    rounds.done(AppendStatus.UNKNOWN)
    assert rounds.ends == {"a": PutStatus.UNKNOWN}
