"""What one read of a peer's connection brings is as few messages as say the same."""

from dledger.core.messages import (
    EntryRange,
    HeartBeatRequest,
    Message,
    PushRequest,
    PushResponse,
    PushResult,
    PushType,
)
from dledger.entry import EntryKind, Index, Pos, Term, seal_entries
from dledger.pushed_entries import join_pushes, verify_pushed


def pushes(*counts: int, first_pos: int = 0) -> list[tuple[Message, bytes]]:
    """APPENDs of so many entries each, one after the other, as a leader sends them."""
    messages: list[tuple[Message, bytes]] = []
    index, pos, chain = 0, first_pos, 0
    for number, count in enumerate(counts, 1):
        bodies = [b"body %d" % each for each in range(index, index + count)]
        positions, at = [], pos
        for body in bodies:
            positions.append(at)
            at += 48 + len(body)
        buffers, next_chain = seal_entries(bodies, positions, index, 1, EntryKind.MESSAGE, chain)
        payload = b"".join(buffers)
        last = Index(index + count - 1)
        entries = EntryRange(Index(index), last, Pos(pos), len(payload), Term(1), next_chain)
        previous_term = Term(1 if index else -1)
        push = PushRequest(
            PushType.APPEND,
            Term(1),
            "n0",
            Index(index - 1),
            previous_term,
            chain,
            Index(number),
            number,
            entries,
        )
        messages.append((push, payload))
        index, pos, chain = index + count, at, next_chain
    return messages


def ack(index: int, member: str = "n1", result: PushResult = PushResult.SUCCESS) -> tuple[Message, bytes]:
    answer = PushResponse(
        PushType.APPEND,
        Term(1),
        member,
        index,
        result,
        Index(index),
        Index(0),
        Index(index),
        Term(-1),
        Index(-1),
    )
    return answer, b""


def test_adjoining_pushes_are_one_push_that_is_sound() -> None:
    messages = pushes(1, 3, 2)
    ((joined, payload),) = join_pushes(messages)
    assert isinstance(joined, PushRequest)
    last, _ = messages[-1]
    assert isinstance(last, PushRequest)
    assert (joined.sequence, joined.committed_index) == (last.sequence, last.committed_index)
    assert joined.previous_index == -1
    verified = verify_pushed(joined, payload).payload
    assert verified is not None
    assert (verified.first_index, verified.last_index, verified.count) == (0, 5, 6)


def test_a_push_that_does_not_adjoin_stays_alone() -> None:
    first, second, third = pushes(1, 1, 1)
    assert join_pushes([first, third]) == [first, third]
    assert join_pushes([second, first]) == [second, first]
    other_file = pushes(1, 1, first_pos=4096)
    assert join_pushes([first, other_file[1]]) == [first, other_file[1]]


def test_what_lies_between_keeps_its_place() -> None:
    first, second, third = pushes(1, 1, 1)
    heart_beat = (HeartBeatRequest(Term(1), "n0", Index(0), 7), b"")
    joined = join_pushes([first, second, heart_beat, third])
    assert len(joined) == 3
    assert joined[1:] == [heart_beat, third]


def test_of_acknowledgements_the_last_one_counts() -> None:
    assert join_pushes([ack(1), ack(2), ack(5)]) == [ack(5)]
    refused = ack(3, result=PushResult.INCONSISTENT_STATE)
    assert join_pushes([ack(1), refused, ack(2)]) == [ack(1), refused, ack(2)]
    assert join_pushes([ack(1), ack(2, "n2")]) == [ack(1), ack(2, "n2")]
