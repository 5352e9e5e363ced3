"""Who may do what: users, and what policies allow to each. docs/adr/0016-access-control.md says why it is a table.

Nothing of it is exported: RocketMQ keeps its own in a RocksDB. Secrets are in plain text in the log and in full states,
since a signature can be checked with the secret alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec.structs import replace

from auth.policy import Action, Decision, Policies, PolicyEntry, PolicyType
from auth.user import MASK, User, UserStatus, UserType
from store.state.table import StateChange, Table
from store.state.table_configs import DataVersion


class PutUser(StateChange, frozen=True):
    """What is None stays as it is. A user that is not there is made if nothing is None, and is not made else."""

    kind: ClassVar[int] = 31
    username: str
    password: str | None
    user_type: UserType | None
    user_status: UserStatus | None

    @classmethod
    def unpack(cls, values: list[Any]) -> PutUser:
        username, password, user_type, user_status = values
        return cls(
            username, password, user_type and UserType(user_type), user_status and UserStatus(user_status)
        )

    def __repr__(self) -> str:
        return f"PutUser({self.username!r}, {MASK}, {self.user_type}, {self.user_status})"


class DeleteUser(StateChange, frozen=True):
    """With all policies."""

    kind: ClassVar[int] = 32
    username: str


class PutPolicyEntries(StateChange, frozen=True):
    """Each takes the place of the entry about the same resource. Nothing is changed for a user that is not there."""

    kind: ClassVar[int] = 33
    username: str
    policy_type: PolicyType
    entries: tuple[PolicyEntry, ...]

    def pack(self) -> list[Any]:
        return [self.username, self.policy_type, [_pack_entry(entry) for entry in self.entries]]

    @classmethod
    def unpack(cls, values: list[Any]) -> PutPolicyEntries:
        username, policy_type, entries = values
        return cls(username, PolicyType(policy_type), tuple(map(_unpack_entry, entries)))


class DeletePolicyEntries(StateChange, frozen=True):
    """Of one resource; without a resource all entries, whatever the type."""

    kind: ClassVar[int] = 34
    username: str
    policy_type: PolicyType
    resource: str | None

    @classmethod
    def unpack(cls, values: list[Any]) -> DeletePolicyEntries:
        username, policy_type, resource = values
        return cls(username, PolicyType(policy_type), resource)


class AccessTable(Table):
    """Invariant: only users that are there have policies."""

    name = "access"
    changes = (PutUser, DeleteUser, PutPolicyEntries, DeletePolicyEntries)

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, User] = {}
        self.policies: dict[str, Policies] = {}  # by user; a new value at each change

    @property
    def has_super_user(self) -> bool:
        """One that is enabled."""
        return any(user.is_super and user.is_enabled for user in self.users.values())

    def rows(self) -> dict[tuple[str, str], User | Policies]:
        users = {("user", name): user for name, user in self.users.items()}
        policies = {("policies", name): policies for name, policies in self.policies.items()}
        return {**users, **policies}

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        for change in changes:
            match change:
                case PutUser():
                    self._put_user(change)
                case DeleteUser(username):
                    self.users.pop(username, None)
                    self.policies.pop(username, None)
                case PutPolicyEntries(username, policy_type, entries) if username in self.users:
                    old = self.policies.get(username, Policies({}, {}))
                    put = {entry.resource: entry for entry in entries}
                    self._set(username, policy_type, {**old.of_type(policy_type), **put})
                case DeletePolicyEntries(username, _, None):
                    self.policies.pop(username, None)
                case DeletePolicyEntries(username, policy_type, resource) if username in self.policies:
                    old_entries = self.policies[username].of_type(policy_type)
                    left = {key: entry for key, entry in old_entries.items() if key != resource}
                    self._set(username, policy_type, left)
            self.data_version = self.data_version.next(timestamp)

    def _put_user(self, change: PutUser) -> None:
        old = self.users.get(change.username)
        password = change.password if old is None else change.password or old.password
        user_type = change.user_type if old is None else change.user_type or old.user_type
        user_status = change.user_status if old is None else change.user_status or old.user_status
        if password and user_type and user_status:
            self.users[change.username] = User(change.username, password, user_type, user_status)

    def _set(self, username: str, policy_type: PolicyType, entries: dict[str, PolicyEntry]) -> None:
        policies = self.policies.get(username, Policies({}, {}))
        if policy_type is PolicyType.CUSTOM:
            policies = replace(policies, custom=entries)
        else:
            policies = replace(policies, default=entries)
        if policies.custom or policies.default:
            self.policies[username] = policies
        else:
            self.policies.pop(username, None)

    def pack(self) -> list[Any]:
        users = [
            [user.username, user.password, user.user_type, user.user_status] for user in self.users.values()
        ]
        policies = [
            [
                name,
                *([_pack_entry(entry) for entry in of_type.values()] for of_type in (it.custom, it.default)),
            ]
            for name, it in self.policies.items()
        ]
        return [self.data_version.pack(), users, policies]

    def unpack(self, values: list[Any]) -> None:
        version, users, policies = values
        self.data_version = DataVersion(*version)
        self.users = {
            name: User(name, password, UserType(user_type), UserStatus(user_status))
            for name, password, user_type, user_status in users
        }
        self.policies = {
            name: Policies(_by_resource(custom), _by_resource(default)) for name, custom, default in policies
        }


def _by_resource(packed: list[Any]) -> dict[str, PolicyEntry]:
    entries = map(_unpack_entry, packed)
    return {entry.resource: entry for entry in entries}


def _pack_entry(entry: PolicyEntry) -> list[Any]:
    return [entry.resource, list(entry.actions), list(entry.source_ips), entry.decision]


def _unpack_entry(values: list[Any]) -> PolicyEntry:
    resource, actions, source_ips, decision = values
    return PolicyEntry(resource, tuple(map(Action, actions)), tuple(source_ips), Decision(decision))
