"""What committed changes of users and policies add up to, entry by entry, and whom that admits.

It is written from docs/security.md alone: nothing here is taken from the code under test but the bytes of its log. So a
member whose tables or decisions are not what its entries say differs from this.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from itertools import product
from typing import Any, Final, NamedTuple

import msgpack

_RECORD_OF_CHANGES: Final = 1
_PUT_USER, _DELETE_USER, _PUT_ENTRIES, _DELETE_ENTRIES = 31, 32, 33, 34
_CUSTOM: Final = "Custom"

UserRow = tuple[str, str, str]  # password, type, status
EntriesRow = dict[
    str, tuple[tuple[str, ...], tuple[str, ...], str]
]  # by resource: actions, sources, decision
PolicyRow = tuple[EntriesRow, EntriesRow]  # Custom, Default
AccessRows = tuple[dict[str, UserRow], dict[str, PolicyRow]]  # both by user


class Question(NamedTuple):
    """Whether a request of that sender is to be admitted, which is signed with that password."""

    username: str
    password: str
    resource_type: str
    resource_name: str
    action: str
    source_ip: str


# Of the conf: it counts while the table has no super user that is enabled.
CONF_USER: Final = "root"
USERNAMES: Final = (CONF_USER, "alice", "bob")
PASSWORDS: Final = ("first-secret", "second-secret")
CONF_PASSWORD: Final = PASSWORDS[0]
RESOURCE_NAMES: Final = ("orders", "orders-late")
SOURCE_IPS: Final = ("10.0.0.1", "10.1.0.1")
QUESTIONS: Final = tuple(
    Question(*values)
    for values in product(
        USERNAMES, PASSWORDS, ("Topic", "Group"), RESOURCE_NAMES, ("Pub", "Sub"), SOURCE_IPS
    )
)


@dataclass(frozen=True, slots=True)
class AccessState:
    """Behind one entry of the log. `count`: of the changes up to there."""

    count: int = 0
    users: dict[str, UserRow] = field(default_factory=dict)
    policies: dict[str, PolicyRow] = field(default_factory=dict)

    @property
    def rows(self) -> AccessRows:
        return self.users, self.policies

    def admits(self, question: Question) -> bool:
        users = self.users
        if not any(kind == "Super" and status == "enable" for _, kind, status in users.values()):
            users = {**users, CONF_USER: (CONF_PASSWORD, "Super", "enable")}
        password, kind, status = users.get(question.username, ("", "", ""))
        if status != "enable" or password != question.password:
            return False
        if kind == "Super":
            return True
        ranked = sorted(self._ranked(question))
        return bool(ranked) and ranked[0][-1]

    def _ranked(self, question: Question) -> Iterator[tuple[bool, bool, int, int, bool]]:
        """Each entry that is about it: where it stands among the others, and last whether it allows."""
        for policies, is_default in zip(
            self.policies.get(question.username, ({}, {})), (False, True), strict=True
        ):
            for resource, (actions, sources, decision) in policies.items():
                kind, _, name = resource.partition(":")
                if resource != "*" and (kind != question.resource_type or not _is_named(name, question)):
                    continue
                if "All" not in actions and question.action not in actions:
                    continue
                if sources and not any(
                    ip_address(question.source_ip) in ip_network(source) for source in sources
                ):
                    continue
                vagueness = 2 if name in ("", "*") else 1 if name.endswith("*") else 0
                yield is_default, resource == "*", vagueness, -len(name), decision == "Allow"


def _is_named(name: str, question: Question) -> bool:
    if name.endswith("*"):
        return question.resource_name.startswith(name[:-1])
    return question.resource_name == name


class AccessLog:
    """Invariant: `at` says what the changes in committed entries add up to, as far as add() was given them."""

    def __init__(self) -> None:
        self._indexes = [-1]
        self._states = [AccessState()]
        # By packed change: the entries that have it, and those that somebody was told are applied, with the index that
        # the teller had applied then.
        self._committed: defaultdict[bytes, list[int]] = defaultdict(list)
        self._told: defaultdict[bytes, int] = defaultdict(int)
        self._to_check: list[tuple[bytes, int]] = []

    def at(self, index: int) -> AccessState:
        return self._states[bisect_right(self._indexes, index) - 1]

    def add(self, index: int, body: bytes | memoryview) -> None:
        """The next state entry."""
        _, record_type, *rest = msgpack.unpackb(body)
        if record_type != _RECORD_OF_CHANGES:
            return
        changes = [change for change in rest[0] if _PUT_USER <= change[0] <= _DELETE_ENTRIES]
        if not changes:
            return
        old = self._states[-1]
        users, policies = dict(old.users), dict(old.policies)
        for kind, *values in changes:
            self._committed[msgpack.packb([kind, *values])].append(index)
            _apply(users, policies, kind, values)
        self._indexes.append(index)
        self._states.append(AccessState(old.count + len(changes), users, policies))

    def told(self, packed_change: bytes, applied_index: int) -> None:
        """A client was told that the change counts, by a member that has applied so much."""
        self._to_check.append((packed_change, applied_index))

    def untrue(self, end_index: int) -> str | None:
        """What was told, and is not in the log. `end_index`: as far as the log is known."""
        waiting = []
        for packed, applied_index in self._to_check:
            if applied_index > end_index:
                waiting.append((packed, applied_index))
                continue
            self._told[packed] += 1
            count = bisect_right(self._committed[packed], applied_index)
            if count < self._told[packed]:
                return (
                    f"the change {msgpack.unpackb(packed)} was told {self._told[packed]} times, and is {count} times "
                    f"in the log up to entry {applied_index}"
                )
        self._to_check = waiting
        return None


def _apply(users: dict[str, UserRow], policies: dict[str, PolicyRow], kind: int, values: list[Any]) -> None:
    username = values[0]
    if kind == _PUT_USER:
        said, old = values[1:], users.get(username, (None, None, None))
        password, user_type, status = (new or before for new, before in zip(said, old, strict=True))
        if password and user_type and status:
            users[username] = password, user_type, status
    elif kind == _DELETE_USER:
        users.pop(username, None)
        policies.pop(username, None)
    elif username in users:
        custom, default = policies.get(username, ({}, {}))
        if kind == _PUT_ENTRIES:
            put = {
                resource: (tuple(actions), tuple(sources), decision)
                for resource, actions, sources, decision in values[2]
            }
            changed = {**(custom if values[1] == _CUSTOM else default), **put}
        else:
            resource = values[2]
            if resource is None:
                policies.pop(username, None)
                return
            changed = dict(custom if values[1] == _CUSTOM else default)
            changed.pop(resource, None)
        custom, default = (changed, default) if values[1] == _CUSTOM else (custom, changed)
        policies[username] = custom, default
        if not custom and not default:
            del policies[username]
