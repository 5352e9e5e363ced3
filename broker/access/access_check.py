"""The check of each request before its handler: its user, its address, and what policies allow that user.

The pipeline calls it; what it knows of users and policies is what this member has applied. docs/security.md tells what
is checked where.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from auth.authentication import (
    CLIENT_ADDRESS,
    CLIENT_USER,
    AccessRefused,
    authenticate,
    check_administration,
    check_signature,
    host_of,
    known_user,
)
from auth.decision import UserRules, Verdict
from auth.policy import Action, Policies, Resource, ResourceType, address_of
from auth.user import NAME_LENGTH_MAX, User
from broker.access.needs import Need
from broker.access.passed_on import PASSED_ON_FIELDS, PassedOn
from broker.config.access_settings import ADMIN_FROM_KEY, AccessConfig
from message.names import RETRY_GROUP_TOPIC_PREFIX
from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand
from store.state.tables.access_table import AccessTable

DECISIONS_MAX: Final = 10_000  # that are remembered
_NO_POLICIES: Final = Policies({}, {})
_PUBLISHES: Final = Need(ResourceType.TOPIC, frozenset({Action.PUB}))


class Sender(msgspec.Struct, frozen=True):
    """Who asks, and from where. `user`: None: nobody was asked who they are."""

    source_ip: str
    user: User | None = None

    @property
    def is_super(self) -> bool:
        """Without authentication, administration is checked by the address alone."""
        return self.user is None or self.user.is_super


class RequestAccess(msgspec.Struct, frozen=True):
    """What a handler may still ask of one request."""

    check: AccessCheck
    code: int
    needs: tuple[Need, ...]
    sender: Sender

    def refusal_of_topic(self, topic: str) -> str | None:
        return self.check.refusal_of_topic(self.code, self.needs, self.sender, topic)

    def may_publish(self, topic: str) -> bool:
        """Later as well, by what policies say then."""
        return self.check.may_publish(self.code, self.sender, topic)


class AccessCheck:
    def __init__(
        self,
        config: AccessConfig,
        cluster_name: str,
        trace_topic: str,
        table: AccessTable,
        passed_on: PassedOn,
    ) -> None:
        self._config = config
        self.is_open = not config.authentication_enabled  # requests that are no administration need no look
        self.reads_headers = config.authorization_enabled  # check() needs to know what a request is about
        self._cluster = Resource(ResourceType.CLUSTER, cluster_name)
        self._trace_topic = trace_topic
        self._table = table
        self._passed_on = passed_on
        self._conf_users = {user.username: user for user in config.conf_users}
        self._seen_version = table.data_version
        self._users: Mapping[str, User] = {}
        # By user. The policies tell whether the rules are still theirs.
        self._rules: dict[str, tuple[Policies, UserRules]] = {}
        self._decisions: dict[tuple[str, Resource, frozenset[Action], str], Verdict] = {}
        self._forget()

    def sender_of(self, command: RemotingCommand, remote_address: str) -> Sender:
        """Raises AccessRefused for one that does not prove who they are, and must."""
        source_ip = self._passed_on.source_of(command) or host_of(remote_address)
        if self.is_open:
            return Sender(source_ip)
        try:
            return self._authenticated(command, source_ip)
        except AccessRefused:
            if command.code in self._config.authentication_whitelist:
                return Sender(source_ip)
            raise

    def _authenticated(self, command: RemotingCommand, source_ip: str) -> Sender:
        fields = command.ext_fields
        user = authenticate(self.users, fields, command.body, command.version, PASSED_ON_FIELDS)
        if user.is_super and CLIENT_USER in fields:
            return Sender(
                _told_ip(fields.get(CLIENT_ADDRESS, "")), known_user(self.users, fields[CLIENT_USER])
            )
        return Sender(source_ip, user)

    @property
    def users(self) -> Mapping[str, User]:
        """All that count now: while the table has no super user, those of the conf do, too."""
        if self._table.data_version is not self._seen_version:
            self._forget()
        return self._users

    def check(
        self,
        code: int,
        needs: Iterable[Need],
        is_administration: bool,
        sender: Sender,
        header: Any,
        body: Any,
    ) -> None:
        """Raises AccessRefused. Of needs that the handler knows alone nothing is said here."""
        if not self._config.authorization_enabled:
            if is_administration:
                self._check_administration(code, sender)
            return
        for resource, actions in self.resources_of(needs, header, body):
            verdict = self.decide(code, sender, resource, actions)
            if not verdict.is_allowed:
                raise AccessRefused(verdict.reason, verdict.rule)

    def _check_administration(self, code: int, sender: Sender) -> None:
        if sender.user is None or not sender.user.is_super:
            check_administration(
                RequestCode(code).name, sender.source_ip, self._config.admin_from, ADMIN_FROM_KEY, "broker"
            )

    def resources_of(
        self, needs: Iterable[Need], header: Any, body: Any
    ) -> list[tuple[Resource, frozenset[Action]]]:
        found = []
        for need in needs:
            if need.resource is ResourceType.CLUSTER:
                found.append((self._cluster, need.actions))
            elif need.resource is not None and need.names is not None:
                found += [_resource(need, name) for name in need.names(header, body)]
        return found

    def decide(self, code: int, sender: Sender, resource: Resource, actions: frozenset[Action]) -> Verdict:
        """With authorization on."""
        if code in self._config.authorization_whitelist:
            return Verdict(True, "authorizationWhitelist")
        return self._verdict(sender, resource, actions)

    def _verdict(self, sender: Sender, resource: Resource, actions: frozenset[Action]) -> Verdict:
        user = sender.user
        if user is None:
            return Verdict(False, "no user is named", "username cannot be null.")
        if user.is_super:
            return Verdict(True, "super user")
        if (
            resource.name == self._trace_topic
            and Action.PUB in actions
            and resource.type is ResourceType.TOPIC
        ):
            return Verdict(True, "each user may write to the trace topic")
        key = (user.username, resource, actions, sender.source_ip)
        verdict = self._decisions.get(key)
        if verdict is None or self._table.data_version is not self._seen_version:
            verdict = self._rules_of(user.username).decide(user.username, resource, actions, sender.source_ip)
            if len(self._decisions) >= DECISIONS_MAX:
                self._decisions.clear()
            if len(resource.name) <= NAME_LENGTH_MAX:  # longer ones are no topic's or group's
                self._decisions[key] = verdict
        return verdict

    def signer(self, username: str, content: str, signature: str) -> User:
        """The user that has signed this elsewhere. Raises AccessRefused, whatever the conf says."""
        user = known_user(self.users, username)
        check_signature(user, content.encode(errors="replace"), signature)
        return user

    def check_elsewhere(self, sender: Sender, asked: Iterable[tuple[Need, str]]) -> None:
        """Of what a proxy does for a sender. Raises AccessRefused."""
        if self._config.authorization_enabled:
            for need, name in asked:
                verdict = self._verdict(sender, *_resource(need, name))
                if not verdict.is_allowed:
                    raise AccessRefused(verdict.reason, verdict.rule)

    def refusal_of_topic(self, code: int, needs: Iterable[Need], sender: Sender, topic: str) -> str | None:
        """Of a topic that only the handler knows."""
        if not self._config.authorization_enabled:
            return None
        for need in needs:
            if need.is_in_handler:
                verdict = self.decide(code, sender, *_resource(need, topic))
                if not verdict.is_allowed:
                    return verdict.reason
        return None

    def may_publish(self, code: int, sender: Sender, topic: str) -> bool:
        """Of whom a request with that code has proved to be, maybe a while ago."""
        if not self._config.authorization_enabled:
            return True
        if sender.user is not None:
            user = self.users.get(sender.user.username)
            if user is None or not user.is_enabled:
                return False
            sender = Sender(sender.source_ip, user)
        return self.decide(code, sender, *_resource(_PUBLISHES, topic)).is_allowed

    def explain(
        self,
        code: int,
        needs: Iterable[Need],
        is_administration: bool,
        username: str,
        resources: Mapping[ResourceType, Resource],
        source_ip: str,
    ) -> list[tuple[str, Verdict | None]]:
        """What is needed and what decides it, for a request about these resources with a sound signature of that user.
        No verdict: that hangs on a resource that is not named.
        """
        user = self.users.get(username)
        sender = Sender(source_ip, user or User(username, ""))
        if self._config.authentication_enabled and (user is None or not user.is_enabled):
            rule = "no such user" if user is None else "the user is disabled"
            return [("a user", Verdict(False, rule))]
        if not self._config.authorization_enabled:
            rule, is_allowed = "authorization is off", True
            try:
                self.check(code, needs, is_administration, sender, None, None)
            except AccessRefused as refused:
                rule, is_allowed = str(refused), False
            return [("administration" if is_administration else "nothing", Verdict(is_allowed, rule))]
        return [self._explained(code, need, sender, resources) for need in needs]

    def _explained(
        self, code: int, need: Need, sender: Sender, resources: Mapping[ResourceType, Resource]
    ) -> tuple[str, Verdict | None]:
        if need.resource is None:
            return "nothing", Verdict(True, "each user may")
        if need.resource is ResourceType.CLUSTER:
            named, actions = self._cluster, need.actions
        elif need.resource in resources:
            named, actions = _resource(need, resources[need.resource].name)
        else:
            return f"{_joined(need.actions)} on a {need.resource.value}", None
        return f"{_joined(actions)} on {named}", self.decide(code, sender, named, actions)

    def _rules_of(self, username: str) -> UserRules:
        if self._table.data_version is not self._seen_version:
            self._forget()
        policies = self._table.policies.get(username, _NO_POLICIES)
        known = self._rules.get(username)
        if known is None or known[0] is not policies:
            known = self._rules[username] = policies, UserRules(policies)
        return known[1]

    def _forget(self) -> None:
        self._seen_version = self._table.data_version
        self._users = self._table.users
        if not self._table.has_super_user:
            self._users = {**self._table.users, **self._conf_users}
        self._rules = {name: known for name, known in self._rules.items() if name in self._users}
        self._decisions.clear()


def _told_ip(text: str) -> str:
    """Empty for what is no address. Without its zone, which may be any text of any length."""
    source_ip = text.partition("%")[0]
    return "" if address_of(source_ip) is None else source_ip


def _resource(need: Need, name: str) -> tuple[Resource, frozenset[Action]]:
    assert need.resource is not None, "looked at before"
    if need.resource is ResourceType.TOPIC and name.startswith(RETRY_GROUP_TOPIC_PREFIX):
        # No group's name has a plus: with one it is a retry topic of pop consumers (V2).
        owner = name.removeprefix(RETRY_GROUP_TOPIC_PREFIX).partition("+")[0]
        actions = {Action.SUB if action is Action.PUB else action for action in need.actions}
        return Resource(ResourceType.GROUP, owner), frozenset(actions)
    return Resource(need.resource, name), need.actions


def _joined(actions: Iterable[Action]) -> str:
    return " or ".join(sorted(actions))
