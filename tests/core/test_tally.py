"""When a round of votes is won, lost or open; doubted voters need more than a majority."""

import pytest

from dledger.core.messages import VoteResponse, VoteResult
from dledger.core.tally import RoundOutcome, tally
from dledger.entry import Index, Term

WON, LOST, OPEN = RoundOutcome.WON, RoundOutcome.LOST, RoundOutcome.OPEN
GRANT, REFUSE = VoteResult.ACCEPT, VoteResult.REJECT_ALREADY_VOTED
MUTE = VoteResult.REJECT_CANNOT_VOTE
VOTERS = ("n0", "n1", "n2")
OWN_END = (Term(2), Index(5))


def _answers(**results):
    """Voter = result, or (result, doubted, end)."""
    answers = {}
    for voter, value in results.items():
        result, doubted, end = value if isinstance(value, tuple) else (value, False, OWN_END)
        answers[voter] = VoteResponse(Term(3), Term(3), voter, False, result, *end, doubted)
    return answers


@pytest.mark.parametrize(
    ("answers", "unreachable", "outcome"),
    [
        (_answers(n0=GRANT), (), OPEN),
        (_answers(n0=GRANT), ("n1",), OPEN),
        (_answers(n0=GRANT), ("n1", "n2"), LOST),
        (_answers(n0=GRANT, n1=GRANT), ("n2",), WON),
        (_answers(n0=GRANT, n1=REFUSE), (), OPEN),
        (_answers(n0=GRANT, n1=REFUSE), ("n2",), LOST),
        (_answers(n0=GRANT, n1=REFUSE, n2=REFUSE), (), LOST),
        (_answers(n1=GRANT, n2=GRANT), (), WON),  # while the own vote is being saved
    ],
)
def test_a_majority_wins_and_nobody_is_awaited_who_cannot_answer(answers, unreachable, outcome):
    assert tally(answers, VOTERS, frozenset(unreachable), OWN_END, witnesses=VOTERS) is outcome


DOUBTED = (GRANT, True, OWN_END)
BEHIND = (Term(2), Index(4))
AHEAD = (Term(2), Index(6))


@pytest.mark.parametrize(
    ("answers", "outcome"),
    [
        (_answers(n0=GRANT, n1=DOUBTED), OPEN),
        (_answers(n0=DOUBTED, n1=DOUBTED), OPEN),
        (_answers(n0=GRANT, n1=DOUBTED, n2=DOUBTED), WON),
        (_answers(n0=DOUBTED, n1=GRANT, n2=GRANT), WON),
        (_answers(n0=GRANT, n1=DOUBTED, n2=(MUTE, False, BEHIND)), LOST),
        (_answers(n0=GRANT, n1=DOUBTED, n2=(VoteResult.REJECT_SMALL_LEDGER_END_INDEX, False, AHEAD)), LOST),
        # n2 has voted for another, perhaps together with what n1 was before it lost its disk.
        (_answers(n0=GRANT, n1=DOUBTED, n2=(REFUSE, False, BEHIND)), LOST),
        (_answers(n0=DOUBTED, n1=(MUTE, True, BEHIND), n2=(MUTE, False, BEHIND)), LOST),
    ],
)
def test_a_doubted_grant_counts_only_when_every_voter_was_heard(answers, outcome):
    assert tally(answers, VOTERS, frozenset(), OWN_END, witnesses=VOTERS) is outcome


@pytest.mark.parametrize(
    ("answers", "seatless", "outcome"),
    [
        (_answers(n0=GRANT, n1=GRANT), {"n1"}, OPEN),
        (_answers(n0=GRANT, n1=GRANT, n2=GRANT), {"n1"}, WON),
        (_answers(n0=GRANT, n1=GRANT, n2=DOUBTED), {"n1"}, WON),
        # It could commit nothing: what n1 and n2 acknowledge counts for nobody.
        (_answers(n0=GRANT, n1=GRANT, n2=GRANT), {"n1", "n2"}, LOST),
    ],
)
def test_a_leader_is_backed_by_a_majority_that_can_acknowledge_to_it(answers, seatless, outcome):
    assert tally(answers, VOTERS, frozenset(), OWN_END, witnesses=VOTERS, seatless=seatless) is outcome


@pytest.mark.parametrize(
    ("answers", "witnesses", "outcome"),
    [
        (_answers(n0=GRANT, n1=GRANT), ("n0", "n1", "n2"), WON),  # a majority without doubt asks nobody else
        (_answers(n0=GRANT, n1=DOUBTED), ("n0", "n1"), WON),
        (_answers(n0=GRANT, n1=DOUBTED), ("n0", "n1", "n2"), OPEN),
        (_answers(n0=GRANT, n1=DOUBTED, n2=GRANT), ("n0", "n1", "n2"), WON),
        (_answers(n0=GRANT, n1=DOUBTED, n2=(REFUSE, False, AHEAD)), ("n0", "n1", "n2"), LOST),
        (_answers(n0=GRANT, n1=(REFUSE, True, BEHIND)), ("n0", "n1", "n2"), LOST),
        (_answers(n0=GRANT, n1=DOUBTED), None, OPEN),
    ],
)
def test_who_was_a_voter_up_to_now_is_heard_as_well_where_a_grant_is_doubted(answers, witnesses, outcome):
    assert tally(answers, ("n0", "n1"), frozenset(), OWN_END, witnesses=witnesses) is outcome
