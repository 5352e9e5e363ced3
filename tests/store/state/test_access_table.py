"""The table of users and policies: what changes of it make of it, and that no secret is shown."""

from __future__ import annotations

import pytest

from auth.policy import Policies, PolicyType, make_entry
from auth.user import User, UserStatus, UserType
from store.state.state_record import pack_change, pack_changes, unpack_record
from store.state.state_tables import StateTables
from store.state.table import StateChange
from store.state.tables.access_table import (
    AccessTable,
    DeletePolicyEntries,
    DeleteUser,
    PutPolicyEntries,
    PutUser,
)

CUSTOM, DEFAULT = PolicyType.CUSTOM, PolicyType.DEFAULT
ORDERS = make_entry("Topic:orders", ["Pub"], ["10.0.0.0/8"], "Allow")
ALL = make_entry("*", ["All"], [], "Deny")
NEW_USER = PutUser("u", "secret-1", UserType.NORMAL, UserStatus.ENABLE)
SUPER_USER = PutUser("root", "secret-2", UserType.SUPER, UserStatus.ENABLE)


def applied(*changes: StateChange) -> AccessTable:
    """What they make of an empty table, each in a record of its own, as the log has them."""
    table = AccessTable()
    for number, change in enumerate(changes):
        read = unpack_record(pack_changes([pack_change(change)]))
        assert read == [change]
        assert isinstance(read, list)
        table.apply(read, 1000 + number)
    return table


def test_a_user_is_made_and_changed_in_parts() -> None:
    table = applied(
        NEW_USER,
        PutUser("u", "secret-3", None, None),
        PutUser("u", None, None, UserStatus.DISABLE),
        PutUser("nobody", None, None, UserStatus.ENABLE),
    )
    assert table.users == {"u": User("u", "secret-3", UserType.NORMAL, UserStatus.DISABLE)}
    assert table.data_version.counter == 4


def test_an_entry_takes_the_place_of_the_one_about_the_same_resource() -> None:
    other = make_entry("Topic:orders", ["Sub"], [], "Deny")
    table = applied(
        NEW_USER,
        PutPolicyEntries("u", CUSTOM, (ORDERS, ALL)),
        PutPolicyEntries("u", CUSTOM, (other,)),
        PutPolicyEntries("u", DEFAULT, (ALL,)),
        PutPolicyEntries("nobody", CUSTOM, (ALL,)),
    )
    assert table.policies == {"u": Policies({"Topic:orders": other, "*": ALL}, {"*": ALL})}


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (DeletePolicyEntries("u", CUSTOM, "*"), {"u": Policies({"Topic:orders": ORDERS}, {"*": ALL})}),
        (DeletePolicyEntries("u", DEFAULT, "*"), {"u": Policies({"Topic:orders": ORDERS, "*": ALL}, {})}),
        (DeletePolicyEntries("u", DEFAULT, None), {}),
        (
            DeletePolicyEntries("nobody", CUSTOM, "*"),
            {"u": Policies({"Topic:orders": ORDERS, "*": ALL}, {"*": ALL})},
        ),
        (DeleteUser("u"), {}),
    ],
)
def test_entries_are_deleted(change: StateChange, left: dict[str, Policies]) -> None:
    table = applied(
        NEW_USER,
        PutPolicyEntries("u", CUSTOM, (ORDERS, ALL)),
        PutPolicyEntries("u", DEFAULT, (ALL,)),
        change,
    )
    assert table.policies == left
    assert ("u" in table.users) == (not isinstance(change, DeleteUser))


def test_a_user_without_entries_has_no_policies() -> None:
    changes = (NEW_USER, PutPolicyEntries("u", CUSTOM, (ALL,)), DeletePolicyEntries("u", CUSTOM, "*"))
    assert applied(*changes).policies == {}


def test_a_super_user_that_is_disabled_is_none() -> None:
    assert not applied(NEW_USER).has_super_user
    assert applied(SUPER_USER).has_super_user
    assert not applied(SUPER_USER, PutUser("root", None, None, UserStatus.DISABLE)).has_super_user


def test_a_table_reads_back_and_compares_by_its_rows() -> None:
    tables, others = StateTables(), StateTables()
    tables.apply([NEW_USER, SUPER_USER, PutPolicyEntries("u", CUSTOM, (ORDERS, ALL))], 1000)
    others.unpack(tables.pack())
    assert others.access_table.rows() == tables.access_table.rows()
    assert others.access_table.policies == tables.access_table.policies
    tables.apply([PutUser("u", "secret-4", None, None)], 1001)
    assert others.access_table.rows() != tables.access_table.rows(), "another secret is a difference"


def test_no_secret_is_shown() -> None:
    table = applied(NEW_USER, SUPER_USER)
    shown = repr([NEW_USER, *table.rows().items()])
    assert "secret" not in shown
    assert "u" in shown
