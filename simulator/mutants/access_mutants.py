"""Known bugs of users and policies, put back for the length of a run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from broker.access.access_check import AccessCheck
from simulator.mutants.patched import patched
from store.message_store import MessageStore
from store.state.state_proposals import OnProposed, ProposeStatus
from store.state.table import StateChange
from store.state.tables.access_table import AccessTable, DeleteUser


@contextmanager
def access_decided_before_commit() -> Iterator[None]:
    """A leader decides by a change as soon as it is asked for it: another leader may never hear of that."""
    old = MessageStore.propose

    def propose(self: MessageStore, change: StateChange, on_done: OnProposed | None, now_ms: int) -> None:
        old(self, change, on_done, now_ms)
        if self.serving and isinstance(change, AccessTable.changes):
            self.tables.access_table.apply([change], now_ms)

    with patched(MessageStore, "propose", propose):
        yield


@contextmanager
def access_told_before_commit() -> Iterator[None]:
    """An administrator is told that a change counts when it is in the leader's log."""
    old = MessageStore.propose

    def propose(self: MessageStore, change: StateChange, on_done: OnProposed | None, now_ms: int) -> None:
        is_told = self.serving and on_done is not None and isinstance(change, AccessTable.changes)
        old(self, change, None if is_told else on_done, now_ms)
        if is_told and on_done is not None:
            on_done(ProposeStatus.APPLIED)

    with patched(MessageStore, "propose", propose):
        yield


@contextmanager
def old_decisions_kept() -> Iterator[None]:
    """A member goes on with what it has decided once, whatever has changed since: until its next start."""
    old = AccessCheck._forget

    def forget(self: AccessCheck) -> None:
        decisions = dict(self._decisions)
        old(self)
        self._decisions.update(decisions)

    with patched(AccessCheck, "_forget", forget):
        yield


@contextmanager
def conf_user_counts_for_ever() -> Iterator[None]:
    """The super user of the conf counts beside those of the table."""
    old = AccessCheck._forget

    def forget(self: AccessCheck) -> None:
        old(self)
        self._users = {**self._table.users, **self._conf_users}

    with patched(AccessCheck, "_forget", forget):
        yield


@contextmanager
def policies_outlive_their_user() -> Iterator[None]:
    """Who is made anew under the name of a deleted user has that one's rights."""
    old = AccessTable.apply

    def apply(self: AccessTable, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            policies = self.policies.get(change.username) if isinstance(change, DeleteUser) else None
            old(self, [change], timestamp)
            if isinstance(change, DeleteUser) and policies is not None:
                self.policies[change.username] = policies

    with patched(AccessTable, "apply", apply):
        yield


@contextmanager
def deleted_users_back_after_a_restart() -> Iterator[None]:
    """What a member writes down of the table has all users that there ever were: a start brings them back."""
    old_apply, old_pack = AccessTable.apply, AccessTable.pack

    def apply(self: AccessTable, changes: Sequence[StateChange], timestamp: int) -> None:
        before = dict(self.users)
        old_apply(self, changes, timestamp)
        gone: dict[str, Any] = {**getattr(self, "gone", {}), **before}
        self.gone = {name: user for name, user in gone.items() if name not in self.users}  # type: ignore[attr-defined]

    def pack(self: AccessTable) -> list[Any]:
        version, users, policies = old_pack(self)
        gone = [
            [user.username, user.password, user.user_type, user.user_status]
            for user in getattr(self, "gone", {}).values()
        ]
        return [version, users + gone, policies]

    with patched(AccessTable, "apply", apply), patched(AccessTable, "pack", pack):
        yield


ACCESS_MUTANTS: Final = (
    access_decided_before_commit,
    access_told_before_commit,
    old_decisions_kept,
    conf_user_counts_for_ever,
    policies_outlive_their_user,
    deleted_users_back_after_a_restart,
)
