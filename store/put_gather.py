"""Gathers sends: what all connections delivered in one turn of the event loop becomes one append, called a round.

While a round is out, what arrives waits for the next one. The next round starts when one ends, or beside it when that
takes long: so slow networks and slow disks are kept busy, and fast ones get large rounds. A request is stored whole or
not at all. A round is no such unit, since it holds requests of many clients.

The caller owns time and connections. What was handed over is appended whether or not its connection is still open.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import msgspec

from dledger.core.output import AppendStatus
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus
from store.store_runtime import LoopRuntime

# Called with a source, requests of it that ended alike, how they did, and if they are stored: at which of the batch's
# results theirs begin.
OnPutEnd = Callable[[Any, Any, PutBatch | PutRefusal, int], None]

ROUND_SIZE_MAX = 1 << 20  # bytes of records: what one push carries
# Another round may start beside one that is out for so long; what waits is looked at again after WATCH_MS.
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

    # Of the sends that wait here, which alone sets them: nothing else may take their place in the log's limit.
    gathered_size: int
    gathered_count: int

    def check_messages(
        self, messages: Sequence[PutMessage]
    ) -> tuple[list[int], dict[int, PutRefusal]] | PutRefusal:
        """Returns the sizes of the messages' records, and the faults of those that cannot be stored, by their number.
        Or why none can be stored now.
        """

    def check_room(self, size: int, count: int) -> PutRefusal | None:
        """Returns why `count` records of `size` bytes together are not taken, beside what is gathered."""

    def append_messages(
        self,
        messages: Sequence[PutMessage],
        sizes: Sequence[int],
        on_done: Callable[[AppendStatus], None],
        now_ms: int,
    ) -> PutBatch | PutRefusal:
        """Appends all of them or none, as they were checked. `on_done` comes later, once, unless this is a refusal."""


class _Part(msgspec.Struct, gc=False):
    """Requests that follow each other on one connection, and go the same way."""

    source: Any
    requests: Any
    counts: Sequence[int]  # messages of each request; empty: one of each
    messages: Sequence[PutMessage]  # none any more once they are in the log
    sizes: Sequence[int]
    size: int
    on_end: OnPutEnd
    arrival_ms: int
    is_told: bool = False

    def each(self) -> Iterator["_Part"]:
        """Each request as a part of its own."""
        start = 0
        for number in range(len(self.requests)):
            end = start + (self.counts[number] if self.counts else 1)
            yield self._some(slice(number, number + 1), slice(start, end))
            start = end

    def first_of_size(self, size: int) -> tuple["_Part", "_Part | None"]:
        """The requests that begin within the first `size` bytes, at least one, and the rest."""
        end = 0
        for number in range(1, len(self.requests)):
            start, end = end, end + (self.counts[number - 1] if self.counts else 1)
            size -= sum(self.sizes[start:end])
            if size <= 0:
                rest = self._some(slice(number, None), slice(end, None))
                return self._some(slice(0, number), slice(0, end)), rest
        return self, None

    def _some(self, requests: slice, messages: slice) -> "_Part":
        sizes = self.sizes[messages]
        return _Part(
            self.source,
            self.requests[requests],
            self.counts[requests],
            self.messages[messages],
            sizes,
            sum(sizes),
            self.on_end,
            self.arrival_ms,
        )


class _Round(msgspec.Struct, eq=False):
    """Parts that are one append, until it is known how that ends."""

    gather: "PutGather"
    parts: list[_Part]
    batch: PutBatch | None = None  # once it is appended

    def ended(self, status: AppendStatus) -> None:
        gather = self.gather
        if self not in gather.rounds:
            return  # The disk failed after the log had taken it: all of it was told then.
        gather.rounds.remove(self)
        # Before the answers are written: the group works on the one while this member writes the other.
        if gather.waiting and not gather.rounds:
            gather.start_or_watch()
        if status is AppendStatus.SUCCESS:
            assert self.batch is not None, "what was not appended is not stored"
            _tell(self.parts, self.batch)
        else:
            _tell(self.parts, _STOPPED_LEADING)


class PutGather:
    """Invariant: each request that was handed over is told its end once. Those of one source reach the log in the order
    in which they came. What waits here is in no log, so its refusal is definite.
    """

    def __init__(self, appender: Appender, runtime: LoopRuntime, wait_ms_max: int) -> None:
        """`wait_ms_max`: so long after its arrival a request is told its end, come what may."""
        self._appender = appender
        self._runtime = runtime
        self._wait_ms_max = wait_ms_max
        self.waiting: list[_Part] = []  # as they came
        self.rounds: list[_Round] = []  # that are out, the oldest first
        self._newest_began_us = 0
        self._is_turn_end_due = False
        self._is_watching = False

    def add(
        self,
        source: Any,
        messages: list[PutMessage],
        requests: Any,
        counts: Sequence[int],
        on_end: OnPutEnd,
        now_ms: int,
    ) -> None:
        """Takes the send requests that one read of `source`, a connection, has brought. `counts` has the number of
        messages of each of them, and is empty where each has one. `on_end` may be called within, for requests that are
        refused at once.
        """
        appender = self._appender
        checked = appender.check_messages(messages)
        if isinstance(checked, PutRefusal):
            on_end(source, requests, checked, 0)
            return
        sizes, faults = checked
        whole = _Part(source, requests, counts, messages, sizes, sum(sizes), on_end, now_ms)
        for part in _without_faulty(whole, faults) if faults else (whole,):
            count = len(part.sizes)
            # While nothing is out, the append finds out by itself: so a read that comes alone is checked once.
            refusal = appender.check_room(part.size, count) if self.rounds else None
            if refusal is not None:
                on_end(source, part.requests, refusal, 0)
                continue
            self.waiting.append(part)
            appender.gathered_size += part.size
            appender.gathered_count += count
        if appender.gathered_size >= ROUND_SIZE_MAX and not self.rounds:
            self._append(self._take_parts())  # it need not wait for the end of the turn
        if self.waiting and not self._is_turn_end_due:
            self._is_turn_end_due = True
            self._runtime.call_soon(self.start_or_watch)

    @property
    def count(self) -> int:
        """Of messages that wait."""
        return self._appender.gathered_count

    def count_of(self, topic: bytes) -> int:
        """Of messages that wait for this topic; it looks at all of them."""
        return sum(message.topic == topic for part in self.waiting for message in part.messages)

    def append_waiting(self) -> None:
        """Appends now what waits, for what the caller is about to do must come after it."""
        while self.waiting:
            self._append(self._take_parts())

    def refuse_waiting(self, refusal: PutRefusal) -> None:
        """This member serves no more."""
        waiting = self.waiting
        self._set_waiting([])
        _tell(waiting, refusal)

    def tick(self, now_ms: int) -> None:
        """Ends what has waited for too long, in a log or in none."""
        if not self.waiting and not self.rounds:
            return
        latest_ms = now_ms - self._wait_ms_max
        late = [part for part in self.waiting if part.arrival_ms <= latest_ms]
        if late:
            self._set_waiting([part for part in self.waiting if part.arrival_ms > latest_ms])
            _tell(late, _LATE_IN_NO_LOG)
        for round_ in self.rounds:
            if round_.parts[0].arrival_ms <= latest_ms:
                _tell([part for part in round_.parts if part.arrival_ms <= latest_ms], _LATE_IN_LOG)

    # -- rounds ------------------------------------------------------------------------------------------------

    def start_or_watch(self) -> None:
        """Starts a round if something waits and the newest one is slow, or none is out."""
        self._is_turn_end_due = False
        if not self.waiting:
            return
        if not self.rounds or self._runtime.monotonic_us() - self._newest_began_us >= SLOW_ROUND_US:
            self._append(self._take_parts())
        if self.waiting and not self._is_watching:
            self._is_watching = True
            self._runtime.call_later(WATCH_MS, self._watched)

    def _watched(self) -> None:
        self._is_watching = False
        self.start_or_watch()

    def _append(self, parts: list[_Part]) -> None:
        messages, sizes = parts[0].messages, parts[0].sizes
        if len(parts) > 1:
            messages, sizes = [*messages], [*sizes]
            for part in parts[1:]:
                messages += part.messages
                sizes += part.sizes
        round_ = _Round(self, parts)
        self.rounds.append(round_)  # before: where this raises, tick() or the failing member tells the ends
        outcome = self._appender.append_messages(messages, sizes, round_.ended, self._runtime.clock())
        if isinstance(outcome, PutRefusal):
            self.rounds.remove(round_)
            if outcome.status is PutStatus.MESSAGE_ILLEGAL and (len(parts) > 1 or len(parts[0].requests) > 1):
                # One of them turned out to be: it must not cost the others anything.
                for part in parts:
                    for request in part.each():
                        self._append([request])
            else:
                _tell(parts, outcome)
            return
        round_.batch = outcome
        for part in parts:
            part.messages = ()
        self._newest_began_us = self._runtime.monotonic_us()

    def _take_parts(self) -> list[_Part]:
        """For a round. Where more waits than fits, each connection has an equal share of it, and what some leave of
        theirs the others have too: so that none waits for another's load.
        """
        waiting, appender = self.waiting, self._appender
        if appender.gathered_size <= ROUND_SIZE_MAX:
            self.waiting = []
            appender.gathered_size = appender.gathered_count = 0
            return waiting
        sizes: dict[Any, int] = {}
        for part in waiting:
            sizes[part.source] = sizes.get(part.source, 0) + part.size
        room = share = ROUND_SIZE_MAX
        for number, size in enumerate(sorted(sizes.values())):
            share = room // (len(sizes) - number)
            room -= min(size, share)
        taken: list[_Part] = []
        rest: list[_Part] = []
        shares = dict.fromkeys(sizes, share)
        for part in waiting:
            left = shares[part.source]
            if left <= 0:
                rest.append(part)
                continue
            first, others = part.first_of_size(left)
            shares[part.source] = left - first.size
            taken.append(first)
            if others is not None:
                rest.append(others)
        self._set_waiting(rest)
        return taken

    def _set_waiting(self, parts: list[_Part]) -> None:
        self.waiting = parts
        self._appender.gathered_size = sum([part.size for part in parts])
        self._appender.gathered_count = sum([len(part.sizes) for part in parts])


def _tell(parts: Sequence[_Part], outcome: PutBatch | PutRefusal) -> None:
    """Tells each part of a round its end, also where that fails for another one."""
    first = 0
    failure: Exception | None = None
    for part in parts:
        if not part.is_told:
            part.is_told = True
            try:
                part.on_end(part.source, part.requests, outcome, first)
            except Exception as error:  # noqa: BLE001 - it is raised again below
                failure = failure or error
        first += len(part.sizes)
    if failure is not None:
        raise failure


def _without_faulty(part: _Part, faults: dict[int, PutRefusal]) -> list[_Part]:
    """The requests that can be stored. The others are told their ends here."""
    sound: list[_Part] = []
    start = 0
    for request in part.each():
        end = start + len(request.sizes)
        fault = next((faults[number] for number in range(start, end) if number in faults), None)
        if fault is None:
            sound.append(request)
        else:
            _tell([request], fault)
        start = end
    return sound
