"""How a round of pre-votes or votes stands, by the answers so far."""

from collections.abc import Mapping, Sequence, Set
from enum import Enum

from dledger.core.messages import PeerId, VoteResponse, VoteResult
from dledger.entry import Index, Term


class RoundOutcome(Enum):
    OPEN = "OPEN"
    WON = "WON"
    LOST = "LOST"


def tally(
    answers: Mapping[PeerId, VoteResponse],
    voters: Sequence[PeerId],
    unreachable: Set[PeerId],
    ledger_end: tuple[Term, Index],
    *,
    witnesses: Sequence[PeerId] | None,
    seatless: Set[PeerId] = frozenset(),
) -> RoundOutcome:
    """`answers` include the candidate's own, `unreachable` voters are not waited for.

    A doubted voter may have lost entries that it acknowledged, so its grant does not prove what a grant proves: that
    the candidate holds all that a majority ever acknowledged. Undoubted grants of a majority do. So do grants of all
    `witnesses`, none of whom holds more than the candidate: then there is nothing to be found anywhere that it lacks,
    and none can have given its vote elsewhere (a wiped disk forgets a vote as well). They are the voters, and those who
    may still be voters to others; None: that is not known. One that cannot vote yet has promised nothing: it may vote
    for another a moment later.

    The `seatless` answered from another disk than the one that has their seat: a doubt that they cannot know of. Nor do
    their acknowledgements count, so one that only they help to a majority could commit nothing.

    A candidate that its own log takes out is no voter, and its own grant counts for nothing.
    """
    quorum = len(voters) // 2 + 1
    grants = [
        answers[voter]
        for voter in voters
        if voter in answers and answers[voter].vote_result is VoteResult.ACCEPT
    ]
    seated = [grant for grant in grants if grant.voter_id not in seatless]
    if sum(not grant.doubted for grant in seated) >= quorum:
        return RoundOutcome.WON
    if witnesses is not None and all(witness in answers for witness in witnesses):
        is_unanimous = all(
            answers[witness].vote_result is VoteResult.ACCEPT
            and (answers[witness].ledger_end_term, answers[witness].ledger_end_index) <= ledger_end
            for witness in witnesses
        )
        return RoundOutcome.WON if is_unanimous and len(seated) >= quorum else RoundOutcome.LOST
    awaited = sum(voter not in answers and voter not in unreachable for voter in voters)
    return RoundOutcome.OPEN if len(grants) + awaited >= quorum else RoundOutcome.LOST
