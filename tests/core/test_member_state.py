from pathlib import Path

import pytest

from dledger.core.member_state import ROLE_TRANSITIONS, MemberState
from dledger.core.output import HardState, Role
from dledger.entry import Index, Term


def _state(sequence=4):
    return MemberState("n0", HardState(sequence, Term(2), "n1", False), Index(-1), True)


def _state_in(role):
    state = _state()
    if role is not Role.FOLLOWER:
        state.become_candidate("test")
    if role is Role.LEADER:
        state.become_leader("test")
    return state


BECOME = {
    Role.FOLLOWER: lambda state: state.become_follower(None, "test"),
    Role.CANDIDATE: lambda state: state.become_candidate("test"),
    Role.LEADER: lambda state: state.become_leader("test"),
}


@pytest.mark.parametrize("before", Role)
@pytest.mark.parametrize("after", Role)
def test_a_role_changes_only_as_the_table_says(before, after):
    state = _state_in(before)
    if after in ROLE_TRANSITIONS[before]:
        BECOME[after](state)
        assert state.role is after
    elif before is after and after is not Role.LEADER:
        BECOME[after](state)  # nothing new
        assert state.role is before
    else:
        with pytest.raises(AssertionError):
            BECOME[after](state)


def test_every_role_is_reached_and_left():
    assert set(ROLE_TRANSITIONS) == set(Role)
    assert {role for targets in ROLE_TRANSITIONS.values() for role in targets} == set(Role)


def test_a_term_never_falls_and_a_vote_is_given_once():
    state = _state()
    with pytest.raises(AssertionError):
        state.take_term(Term(2), None, "test")
    with pytest.raises(AssertionError):
        state.vote("n2")
    state.take_term(Term(3), None, "test")
    state.vote("n2")
    assert (state.curr_term, state.curr_vote_for) == (3, "n2")


def test_a_commit_never_falls():
    state = _state()
    state.commit(Index(3))
    with pytest.raises(AssertionError):
        state.commit(Index(3))


def test_while_one_hard_state_is_written_only_the_newest_of_the_later_ones_is_next():
    state = _state(sequence=4)
    assert state.next_hard_state() is None
    state.take_term(Term(3), None, "test")
    assert state.next_hard_state() == HardState(5, Term(3), None, False)
    state.vote("n2")
    state.take_term(Term(4), None, "test")
    state.take_term(Term(5), "n0", "test")
    assert state.next_hard_state() is None
    state.hard_state_saved(5)
    assert state.next_hard_state() == HardState(8, Term(5), "n0", False)
    state.hard_state_saved(8)
    assert state.next_hard_state() is None


def test_the_diagram_of_the_docs_shows_the_table():
    page = (Path(__file__).parents[2] / "docs" / "protocol" / "election.md").read_text()
    drawn = [line.strip() for line in page.splitlines() if "-->" in line and "[*]" not in line]
    assert drawn == [
        f"{before.name} --> {after.name}: {cause}"
        for before, targets in ROLE_TRANSITIONS.items()
        for after, cause in targets.items()
    ]
