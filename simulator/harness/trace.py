"""What happened in a run: the newest lines for the report of a failure, and a digest that two equal runs share."""

import hashlib
import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dledger.core.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PushRequest,
    PushResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)

_LINES_KEPT = 400


@contextmanager
def without_logging() -> Iterator[None]:
    """Formatting log lines would take a third of the time, and the trace says it all."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


class Trace:
    """Lines are kept as values and written out only if somebody reads them: a run makes some hundred thousand."""

    def __init__(self, *, with_digest: bool = False) -> None:
        self._lines: deque[tuple[int, str, tuple[Any, ...]]] = deque(maxlen=_LINES_KEPT)
        self._digest = hashlib.sha256() if with_digest else None

    def add(self, now_us: int, text: str, *values: Any) -> None:
        """`text` with a {} for each value."""
        line = (now_us, text, values)
        self._lines.append(line)
        if self._digest is not None:
            self._digest.update(_written(line).encode())

    def last(self, count: int) -> list[str]:
        return [_written(line) for line in list(self._lines)[-count:]]

    @property
    def digest(self) -> str:
        return self._digest.hexdigest() if self._digest is not None else ""


def _written(line: tuple[int, str, tuple[Any, ...]]) -> str:
    now_us, text, values = line
    shown = [describe(value) if isinstance(value, Message) else value for value in values]
    return f"{now_us / 1000:.3f} {text.format(*shown)}"


def describe(message: Message) -> str:
    """One message as a line of the trace shows it."""
    match message:
        case VoteRequest():
            kind = "PRE_VOTE" if message.pre_vote else "VOTE"
            transfer = " transfer" if message.leadership_transfer else ""
            end = f"{message.ledger_end_term}/{message.ledger_end_index}"
            return f"{kind} term={message.term} end={end}{transfer}"
        case TimeoutNow():
            return f"TIMEOUT_NOW term={message.term} end={message.ledger_end_index}"
        case VoteResponse():
            kind = "PRE_VOTE_RESPONSE" if message.pre_vote else "VOTE_RESPONSE"
            doubt = " doubted" if message.doubted else ""
            return f"{kind} term={message.request_term} {message.vote_result.name}{doubt}"
        case HeartBeatRequest():
            return f"HEART_BEAT term={message.term} round={message.round} committed={message.committed_index}"
        case HeartBeatResponse():
            return f"HEART_BEAT_RESPONSE term={message.term} round={message.round} end={message.ledger_end_index}"
        case ReadIndexRequest():
            return f"READ_INDEX term={message.term} id={message.request_id}"
        case ReadIndexResponse():
            outcome = message.refusal.name if message.refusal is not None else f"index={message.read_index}"
            return f"READ_INDEX_RESPONSE term={message.term} id={message.request_id} {outcome}"
        case PushRequest():
            entries = message.entries
            shown = f" entries={entries.first_index}..{entries.last_index}" if entries is not None else ""
            return (
                f"{message.push_type.name} term={message.term} seq={message.sequence} previous="
                f"{message.previous_term}/{message.previous_index} committed={message.committed_index}{shown}"
            )
        case PushResponse():
            return (
                f"{message.push_type.name}_RESPONSE term={message.term} seq={message.sequence} "
                f"{message.push_result.name} durable={message.durable_index} end={message.ledger_end_index}"
            )
