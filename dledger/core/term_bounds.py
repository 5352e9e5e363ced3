"""Which terms can have been reached, so that one forged or damaged message does not end a group for good.

A term is taken on as soon as it is heard, and nobody can go back. Somebody who says 2^63-1 would leave no term to elect
in. Each election raises the term by one and has to be durable at a majority first, so terms grow slowly: a leap of
TERM_LEAP_MAX would be four years of nothing but elections, one every 30 ms. A member that was away for long, or that
begins at term 0 in an old group, is closer than that.
"""

from typing import Final

from dledger.core.messages import (
    HeartBeatRequest,
    HeartBeatResponse,
    Message,
    PeerId,
    PushRequest,
    PushResponse,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
)
from dledger.entry import Term

TERM_LEAP_MAX: Final = 1 << 32
# The export for Java names the term behind it, in 64 bits with a sign.
TERM_MAX: Final = (1 << 63) - 2


def term_fault(message: Message, curr_term: Term) -> str | None:
    """Why a message is to be refused for a term that it names, its sender's or an entry's; None: it is not."""
    match message:
        case PushRequest():
            payload, next_term = message.payload, message.next_term
            term = max(
                message.term,
                message.previous_term,
                message.term if payload is None else payload.last_term,
                message.term if next_term is None else next_term,
            )
        case PushResponse():
            term = max(message.term, message.conflict_term)
        case VoteRequest() | VoteResponse():
            term = max(message.term, message.ledger_end_term)
        case _:
            term = message.term
    if term <= curr_term:
        return None
    if term > TERM_MAX or term - curr_term > TERM_LEAP_MAX:
        return (
            f"{type(message).__name__} of {sender(message)} names term {term}, which cannot have been reached: this "
            f"member is in term {curr_term}"
        )
    return None


def sender(message: Message) -> PeerId:
    match message:
        case HeartBeatRequest() | PushRequest() | TimeoutNow():
            return message.leader_id
        case VoteRequest():
            return message.candidate_id
        case VoteResponse():
            return message.voter_id
        case HeartBeatResponse() | PushResponse() | ReadIndexRequest() | ReadIndexResponse():
            return message.member_id
