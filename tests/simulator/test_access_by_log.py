"""Users and policies by the log: what the changes in it add up to, and that a member which differs is found."""

from dataclasses import dataclass
from dataclasses import field as made

import pytest

from auth.policy import PolicyType, make_entry
from auth.user import UserStatus, UserType
from simulator.harness.access_log import QUESTIONS, AccessLog, AccessRows, AccessState, Question
from simulator.harness.oracle import Oracle
from simulator.invariants.kinds.access_by_log import AccessByLog
from simulator.world.access_door import AccessDoor
from store.state.state_record import pack_change, pack_changes
from store.state.table import StateChange
from store.state.tables.access_table import (
    AccessTable,
    DeletePolicyEntries,
    DeleteUser,
    PutPolicyEntries,
    PutUser,
)
from tests.simulator.member_view import View

ALICE = PutUser("alice", "first-secret", UserType.NORMAL, UserStatus.ENABLE)
MAY_SEND = PutPolicyEntries(
    "alice", PolicyType.CUSTOM, (make_entry("Topic:orders", ["Pub"], ["10.0.0.0/16"], "Allow"),)
)
SENDS = Question("alice", "first-secret", "Topic", "orders", "Pub", "10.0.0.1")
BY_CONF = Question("root", "first-secret", "Group", "orders", "Sub", "10.1.0.1")


def log_of(*entries: list[StateChange]) -> AccessLog:
    """The entries have the indexes 10, 20, 30, …"""
    log = AccessLog()
    for number, changes in enumerate(entries, 1):
        log.add(10 * number, pack_changes([pack_change(change) for change in changes]))
    return log


def test_changes_count_from_their_entry_on():
    log = log_of([ALICE, MAY_SEND], [PutUser("alice", "second-secret", None, None)], [DeleteUser("alice")])
    admitted = {index for index in (-1, 9, 10, 19, 20, 30) if log.at(index).admits(SENDS)}
    assert admitted == {10, 19}
    assert log.at(20).admits(SENDS._replace(password="second-secret"))
    assert log.at(10**9).rows == ({}, {})
    assert [log.at(index).count for index in (9, 10, 20, 30)] == [0, 2, 3, 4]


def test_the_super_user_of_the_conf_counts_while_the_table_has_none():
    log = log_of(
        [PutUser("bob", "b", UserType.SUPER, UserStatus.ENABLE)],
        [PutUser("bob", None, None, UserStatus.DISABLE)],
        [PutUser("root", "first-secret", UserType.NORMAL, UserStatus.ENABLE)],
    )
    assert [log.at(index).admits(BY_CONF) for index in (0, 10, 20, 30)] == [True, False, True, True]


POLICIES = [
    [("*", ["All"], [], "Allow")],
    [("*", ["All"], [], "Allow"), ("Topic:*", ["Pub"], [], "Deny")],
    [("Topic:orders*", ["Sub"], [], "Allow"), ("Topic:orders-l*", ["Sub"], ["10.1.0.1"], "Deny")],
    [("Topic:orders", ["Pub", "Sub"], [], "Deny"), ("Topic:orders*", ["All"], [], "Allow")],
    [("Group:orders", ["Sub"], ["10.0.0.0/16"], "Allow"), ("Group:*", ["Sub"], [], "Deny")],
]


@pytest.mark.parametrize("custom", POLICIES)
@pytest.mark.parametrize("default", POLICIES)
def test_the_brokers_check_and_the_log_admit_the_same(custom, default):
    changes = [
        ALICE,
        *(
            PutPolicyEntries("alice", policy_type, tuple(make_entry(*entry) for entry in entries))
            for policy_type, entries in ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
        ),
    ]
    for leaves in ([], [DeletePolicyEntries("alice", PolicyType.CUSTOM, custom[0][0])]):
        table, state = AccessTable(), log_of([*changes, *leaves]).at(10)
        table.apply([*changes, *leaves], 0)
        door = AccessDoor(table)
        assert (door.rows(), door.count) == (state.rows, state.count)
        assert {question for question in QUESTIONS if door.admits(question)} == {
            question for question in QUESTIONS if state.admits(question)
        }


@dataclass
class Door:
    count: int
    known: AccessRows
    wrong: set[Question] = made(default_factory=set)

    def rows(self):
        return self.known

    def admits(self, question):
        return AccessState(0, *self.known).admits(question) != (question in self.wrong)


def oracle_of(log: AccessLog, end_index: int = 20) -> Oracle:
    oracle = Oracle(log)
    oracle.chains = [0] * (end_index + 1)
    return oracle


def test_it_fires_on_a_member_that_lacks_a_change_and_on_one_that_is_ahead():
    log = log_of([ALICE], [DeleteUser("alice")])
    with_alice, without = Door(1, log.at(10).rows), Door(2, ({}, {}))
    assert AccessByLog().check(View(applied_index=19, access=with_alice), oracle_of(log)) is None
    assert AccessByLog().check(View(applied_index=20, access=without), oracle_of(log)) is None
    behind = AccessByLog().check(View(applied_index=20, access=with_alice), oracle_of(log))
    assert "at entry 20, has applied 1 changes of users and policies of 2" in str(behind)
    ahead = AccessByLog().check(View(applied_index=19, access=without), oracle_of(log))
    assert "at entry 19, has applied 2 changes of users and policies of 1" in str(ahead)
    forgotten = AccessByLog().check(View(applied_index=20, access=Door(2, with_alice.known)), oracle_of(log))
    assert "has users and policies ({'alice'" in str(forgotten)


@pytest.mark.parametrize("looks", [1, 10_000])
def test_it_fires_on_a_decision_that_is_not_the_logs(looks):
    """At a change, and later as well: all questions have their turn."""
    log, invariant = log_of([ALICE, MAY_SEND]), AccessByLog()
    door = Door(2, log.at(10).rows, set(QUESTIONS) if looks == 1 else set())
    member, oracle = View(applied_index=10, access=door), oracle_of(log)
    if looks > 1:
        assert invariant.check(member, oracle) is None
        door.wrong = {SENDS}
    faults = (invariant.check(member, oracle) for _ in range(looks))
    assert any("against" in fault for fault in faults if fault is not None)


def test_a_member_whose_log_began_anew_knows_what_it_knew():
    log, invariant = log_of([ALICE], [DeleteUser("alice")]), AccessByLog()
    with_alice = Door(1, log.at(10).rows)
    assert invariant.check(View(applied_index=12, access=with_alice), oracle_of(log)) is None
    began_anew = View(applied_index=20, is_state_whole=False, access=with_alice)
    assert invariant.check(began_anew, oracle_of(log)) is None
    restarted = View(life=2, applied_index=20, is_state_whole=False, access=with_alice)
    assert "at entry -1, has applied 1" in str(invariant.check(restarted, oracle_of(log)))
    empty = View(life=3, applied_index=20, is_state_whole=False, access=Door(0, ({}, {})))
    assert invariant.check(empty, oracle_of(log)) is None


def test_what_was_told_is_in_the_log_at_the_entry_that_the_teller_had_applied():
    log, packed = log_of([ALICE], [ALICE]), pack_change(ALICE)
    log.told(packed, 10)
    log.told(packed, 20)
    log.told(packed, 30)
    assert log.untrue(20) is None, "nobody knows yet what entry 30 is"
    assert "was told 3 times, and is 2 times in the log up to entry 30" in str(log.untrue(30))
    early = log_of([], [ALICE])
    early.told(packed, 19)
    oracle = oracle_of(early, 30)
    assert "is 0 times in the log up to entry 19" in str(AccessByLog().check(View(), oracle))


def test_without_changes_of_users_and_policies_nobody_is_asked():
    assert AccessByLog().check(View(access=None), Oracle()) is None
