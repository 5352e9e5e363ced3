"""Gathers sends: what all connections delivered in one turn of the event loop becomes one append, called a round.

While a round is out, what arrives waits for the next one. The next round starts when one ends, or beside it when that
takes long: so slow networks and slow disks are kept busy, and fast ones get large rounds. A request is stored whole or
not at all. A round is no such unit, since it holds requests of many clients.

The caller owns time and connections. What was handed over is appended whether or not its connection is still open.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.entry import Index
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus

# Called with a range of requests (first, one behind the last) and how they ended: where their messages are, or why they
# are nowhere.
OnPutEnd = Callable[[int, int, PutBatch | PutRefusal], None]

ROUND_SIZE_MAX = 1 << 20  # bytes of records: what one push carries
# Another round may start beside one that is out for so long; who waits is looked at again after WATCH_MS.
SLOW_ROUND_US = 800
WATCH_MS = 1

_STOPPED_LEADING = PutRefusal(
    PutStatus.UNKNOWN,
    "outcome unknown: this member stopped leading before a quorum acknowledged; the message may or may not be stored",
)
_LATE_IN_LOG = PutRefusal(
    PutStatus.UNKNOWN,
    "outcome unknown: no quorum has acknowledged the message in time; it may or may not be stored",
)
_LATE_IN_NO_LOG = PutRefusal(
    PutStatus.SERVICE_NOT_AVAILABLE, "the message is not stored: earlier ones wait for a quorum for too long"
)


class Appender(Protocol):
    """What is needed of the commit log."""

    def check_messages(
        self, messages: Sequence[PutMessage], waiting_size: int, waiting_count: int
    ) -> tuple[list[int], dict[int, PutRefusal]] | PutRefusal:
        """Sizes of the messages' entries, and the faults of those that cannot be stored, by their number. Or why none
        is taken now, beside `waiting_count` messages that were checked and not appended yet.
        """

    def append_messages(
        self,
        messages: Sequence[PutMessage],
        sizes: Sequence[int],
        on_done: Callable[[PutStatus], None],
        now_ms: int,
    ) -> PutBatch | PutRefusal:
        """All of them or none, as they were checked. `on_done` comes later, once, unless this is a refusal."""


class GatherRuntime(Protocol):
    """What the gathering needs of the event loop."""

    def clock(self) -> int:
        """ms since the epoch."""

    def monotonic_us(self) -> int:
        """Since some moment."""

    def call_soon(self, step: Callable[[], None]) -> None:
        """After what this turn of the loop has read."""

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None: ...


class _Part:
    """Requests that follow each other on one connection, and go the same way."""

    __slots__ = ("arrival_ms", "counts", "first_request", "has_ended", "messages", "on_end", "size", "sizes")

    def __init__(
        self,
        first_request: int,
        counts: Sequence[int],
        messages: Sequence[PutMessage],
        sizes: Sequence[int],
        on_end: OnPutEnd,
        arrival_ms: int,
    ) -> None:
        self.first_request = first_request
        self.counts = counts  # messages of each request
        self.messages = messages
        self.sizes = sizes
        self.size = sum(sizes)
        self.on_end = on_end
        self.arrival_ms = arrival_ms
        self.has_ended = False

    def end(self, outcome: PutBatch | PutRefusal) -> None:
        if not self.has_ended:
            self.has_ended = True
            self.on_end(self.first_request, self.first_request + len(self.counts), outcome)

    def cut(self, request: int, message: int) -> tuple["_Part", "_Part"]:
        """The part up to its `request`th request, which begins with its `message`th message, and the rest."""
        on_end, arrival_ms, first = self.on_end, self.arrival_ms, self.first_request
        counts, messages, sizes = self.counts, self.messages, self.sizes
        return (
            _Part(first, counts[:request], messages[:message], sizes[:message], on_end, arrival_ms),
            _Part(first + request, counts[request:], messages[message:], sizes[message:], on_end, arrival_ms),
        )

    def first_of_size(self, size: int) -> tuple["_Part", "_Part | None"]:
        """The requests that begin within the first `size` bytes, at least one, and the rest."""
        message = 0
        for request, count in enumerate(self.counts[:-1], 1):
            size -= sum(self.sizes[message : message + count])
            message += count
            if size <= 0:
                return self.cut(request, message)
        return self, None


class _Round:
    """Parts that are one append, until it is known how that ends."""

    __slots__ = ("arrival_ms", "batch", "parts")

    def __init__(self, parts: list[_Part]) -> None:
        self.parts = parts
        self.arrival_ms = min(part.arrival_ms for part in parts)
        self.batch: PutBatch | None = None  # once it is appended

    def stored(self) -> None:
        """A quorum holds it."""
        batch = self.batch
        assert batch is not None, "what was not appended is not stored"
        if len(self.parts) == 1:
            self.parts[0].end(batch)
            return
        first = 0
        for part in self.parts:
            end = first + len(part.messages)
            part.end(
                PutBatch(
                    batch.results[first:end],
                    batch.store_timestamp,
                    Index(batch.first_index + first),
                    Index(batch.first_index + end - 1),
                )
            )
            first = end


class PutGather:
    """Invariant: each request that was handed over is told its end once. Those of one source reach the log in the order
    in which they came. What waits here is in no log, so its refusal is definite.
    """

    def __init__(self, appender: Appender, runtime: GatherRuntime, wait_ms_max: int) -> None:
        """`wait_ms_max`: so long after its arrival a request is told its end, come what may."""
        self._appender = appender
        self._runtime = runtime
        self._wait_ms_max = wait_ms_max
        self._waiting: dict[int, deque[_Part]] = {}  # by source
        self._waiting_size = 0
        self._waiting_count = 0
        self._rounds: list[_Round] = []  # that are out, the oldest first
        self._newest_began_us = 0
        self._is_turn_end_due = False
        self._is_watching = False

    def add(
        self, source: int, messages: list[PutMessage], counts: list[int], on_end: OnPutEnd, now_ms: int
    ) -> None:
        """Takes the send requests that one read of `source`, a connection, has brought; `counts` has the number of
        messages of each request. `on_end` may be called within, for requests that are refused at once.
        """
        checked = self._appender.check_messages(messages, self._waiting_size, self._waiting_count)
        if isinstance(checked, PutRefusal):
            on_end(0, len(counts), checked)
            return
        sizes, faults = checked
        part = _Part(0, counts, messages, sizes, on_end, now_ms)
        for sound in _without_faulty(part, faults) if faults else (part,):
            self._waiting.setdefault(source, deque()).append(sound)
            self._waiting_size += sound.size
            self._waiting_count += len(sound.messages)
        if self._waiting and not self._is_turn_end_due:
            self._is_turn_end_due = True
            self._runtime.call_soon(self._turn_ended)

    def append_waiting(self) -> None:
        """Appends now what waits, for what the caller is about to append must come after it."""
        while self._waiting:
            self._append(self._take_parts())

    def refuse_waiting(self, refusal: PutRefusal) -> None:
        """This member serves no more."""
        waiting = [part for parts in self._waiting.values() for part in parts]
        self._waiting = {}
        self._waiting_size = self._waiting_count = 0
        for part in waiting:
            part.end(refusal)

    def tick(self, now_ms: int) -> None:
        """Ends what has waited for too long, in a log or in none."""
        latest_ms = now_ms - self._wait_ms_max
        late: list[tuple[_Part, PutRefusal]] = []
        for source, parts in list(self._waiting.items()):
            while parts and parts[0].arrival_ms <= latest_ms:
                late.append((self._forget(parts.popleft()), _LATE_IN_NO_LOG))
            if not parts:
                del self._waiting[source]
        for round_ in self._rounds:
            if round_.arrival_ms <= latest_ms:
                late += [(part, _LATE_IN_LOG) for part in round_.parts if part.arrival_ms <= latest_ms]
        for part, refusal in late:
            part.end(refusal)

    # -- rounds ------------------------------------------------------------------------------------------------

    def _turn_ended(self) -> None:
        self._is_turn_end_due = False
        self._start_or_watch()

    def _watched(self) -> None:
        self._is_watching = False
        self._start_or_watch()

    def _start_or_watch(self) -> None:
        """Starts a round if something waits and the newest one is slow, or none is out."""
        if not self._waiting:
            return
        if not self._rounds or self._runtime.monotonic_us() - self._newest_began_us >= SLOW_ROUND_US:
            self._append(self._take_parts())
        if self._waiting and not self._is_watching:
            self._is_watching = True
            self._runtime.call_later(WATCH_MS, self._watched)

    def _append(self, parts: list[_Part]) -> None:
        if len(parts) == 1:
            messages, sizes = parts[0].messages, parts[0].sizes
        else:
            messages = [message for part in parts for message in part.messages]
            sizes = [size for part in parts for size in part.sizes]
        round_ = _Round(parts)
        self._rounds.append(round_)  # before: where this raises, tick() or the failing member tells the ends
        outcome = self._appender.append_messages(
            messages, sizes, lambda status: self._round_ended(round_, status), self._runtime.clock()
        )
        if isinstance(outcome, PutRefusal):
            self._rounds.remove(round_)
            requests = [request for part in parts for request in _requests_of(part)]
            if outcome.status is PutStatus.MESSAGE_ILLEGAL and len(requests) > 1:
                # One of them turned out to be, since its topic was made anew: it must not cost the others anything.
                for request in requests:
                    self._append([request])
                return
            for part in parts:
                part.end(outcome)
            return
        round_.batch = outcome
        self._newest_began_us = self._runtime.monotonic_us()

    def _take_parts(self) -> list[_Part]:
        """For a round. More than fits is taken by turn, so that no connection waits for another's load."""
        waiting = self._waiting
        if self._waiting_size <= ROUND_SIZE_MAX:
            self._waiting = {}
            self._waiting_size = self._waiting_count = 0
            return [part for parts in waiting.values() for part in parts]
        share = ROUND_SIZE_MAX // len(waiting)
        taken: list[_Part] = []
        for source, parts in list(waiting.items()):
            left = share
            while parts and left > 0:
                part, rest = parts.popleft().first_of_size(left)
                if rest is not None:
                    parts.appendleft(rest)
                left -= part.size
                taken.append(self._forget(part))
            if not parts:
                del waiting[source]
        return taken

    def _forget(self, part: _Part) -> _Part:
        self._waiting_size -= part.size
        self._waiting_count -= len(part.messages)
        return part

    def _round_ended(self, round_: _Round, status: PutStatus) -> None:
        if round_ not in self._rounds:
            return  # The disk failed after the log had taken it: all of it was told then.
        self._rounds.remove(round_)
        # Before the answers are written: the group works on the one while this member writes the other.
        if not self._rounds:
            self._start_or_watch()
        if status is PutStatus.PUT_OK:
            round_.stored()
        else:
            for part in round_.parts:
                part.end(_STOPPED_LEADING)


def _requests_of(part: _Part) -> list[_Part]:
    """Each request as a part of its own."""
    requests: list[_Part] = []
    while len(part.counts) > 1:
        request, part = part.cut(1, part.counts[0])
        requests.append(request)
    return [*requests, part]


def _without_faulty(part: _Part, faults: dict[int, PutRefusal]) -> list[_Part]:
    """The requests that can be stored. The others are told their ends here."""
    sound: list[_Part] = []
    message = 0
    for request in _requests_of(part):
        end = message + len(request.messages)
        fault = next((faults[number] for number in range(message, end) if number in faults), None)
        if fault is None:
            sound.append(request)
        else:
            request.end(fault)
        message = end
    return sound
