"""The raw bytes of an APPEND, proven to be the entries that it announces."""

from collections.abc import Sequence

from msgspec.structs import replace

from dledger.core.messages import EntryRange, Message, PushRequest, PushResponse, PushResult, PushType
from dledger.entry import EntryCorruptError, verify_entries
from dledger.rpc.requests import RepairMessage

# A message with the raw entry bytes that it carries; most carry none.
Received = tuple[Message | RepairMessage, bytes]


class PushNotSoundError(Exception):
    """What was pushed is not what it says it is; the text tells the difference."""


def verify_pushed(message: PushRequest, payload: bytes) -> PushRequest:
    """The message with its verified entries. Raises PushNotSoundError."""
    entries = message.entries
    assert entries is not None, "an APPEND has entries"
    try:
        verified = verify_entries(
            payload,
            first_index=entries.first_index,
            first_pos=entries.pos,
            prev_chain=message.previous_chain,
            prev_term=message.previous_term,
        )
    except EntryCorruptError as error:
        raise PushNotSoundError(f"pushed entries are not sound: {error}") from error
    if (
        verified.last_index != entries.last_index
        or verified.last_term != entries.last_term
        or verified.chain != entries.last_chain
    ):
        seen = (verified.last_index, verified.last_term, verified.chain)
        raise PushNotSoundError(f"pushed entries end at {seen}, announced was {entries}")
    return replace(message, payload=verified)


def join_pushes(messages: Sequence[Received]) -> list[Received]:
    """Messages of one peer, in order, with as few of them as say the same: APPENDs of adjoining entries become one, so
    they are verified, written and acknowledged together; of acknowledgements one after the other the last one counts.
    """
    runs: list[list[Received]] = []
    for message, payload in messages:
        if runs and (_adjoins(runs[-1][-1][0], message) or _says_more(runs[-1][-1][0], message)):
            runs[-1].append((message, payload))
        else:
            runs.append([(message, payload)])
    return [run[0] if len(run) == 1 else _joined(run) for run in runs]


def _adjoins(before: Message | RepairMessage, message: Message | RepairMessage) -> bool:
    """Whether the entries of `message` follow those of `before`, in the log and in the data file."""
    if type(message) is not PushRequest or type(before) is not PushRequest:
        return False
    first, second = before.entries, message.entries
    return (
        first is not None
        and second is not None
        and (before.term, before.leader_id) == (message.term, message.leader_id)
        and (message.previous_index, message.previous_term, message.previous_chain)
        == (first.last_index, first.last_term, first.last_chain)
        and second.pos == first.pos + first.size
    )


def _says_more(before: Message | RepairMessage, message: Message | RepairMessage) -> bool:
    """Whether `message` acknowledges all that `before` does."""
    return (
        type(message) is PushResponse
        and type(before) is PushResponse
        and _is_acknowledgement(before)
        and _is_acknowledgement(message)
        and (before.term, before.member_id) == (message.term, message.member_id)
    )


def _is_acknowledgement(response: PushResponse) -> bool:
    return response.push_type is PushType.APPEND and response.push_result is PushResult.SUCCESS


def _joined(run: Sequence[Received]) -> Received:
    (first, _), (last, payload) = run[0], run[-1]
    if type(first) is not PushRequest or type(last) is not PushRequest:
        return last, payload
    begin, end = first.entries, last.entries
    assert begin is not None, "it has entries that adjoin"
    assert end is not None, "it has entries that adjoin"
    entries = EntryRange(
        begin.first_index,
        end.last_index,
        begin.pos,
        end.pos + end.size - begin.pos,
        end.last_term,
        end.last_chain,
    )
    message = replace(
        last,
        previous_index=first.previous_index,
        previous_term=first.previous_term,
        previous_chain=first.previous_chain,
        entries=entries,
    )
    return message, b"".join(payload for _, payload in run)
