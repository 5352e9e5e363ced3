"""Users and policies as tools see and change them (3001 to 3010), why somebody may do something (52009), and whether a
client of a proxy may (52011).

Every member answers of what it has applied; changes go through the log. Secrets are taken and never given. The words of
refusals are RocketMQ's, which tools look for.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from auth.authentication import AccessRefused
from auth.decision import Verdict
from auth.policy import (
    Action,
    Match,
    Policies,
    PolicyEntry,
    PolicyError,
    PolicyType,
    Resource,
    ResourceType,
    make_entry,
    parse_pattern,
)
from auth.user import NAME_LENGTH_MAX, User, UserStatus, UserType
from broker.access.access_check import AccessCheck, Sender
from broker.access.needs import Need, group, topic
from broker.answers import AnyRequest, Request, answer_all_applied, propose_each
from message.names import RETRY_GROUP_TOPIC_PREFIX, group_fault, topic_fault
from remoting.bodies.auth_bodies import (
    AccessExplanation,
    AccessNeed,
    AccessVerdict,
    AclInfo,
    AuditBody,
    AuditedRequest,
    CheckAccessRequestBody,
    CheckAccessResponseBody,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
    encode_list,
)
from remoting.codes import ResponseCode
from remoting.headers import auth_headers as headers
from remoting.headers.headers import CommandHeader
from store.state.state_proposals import ProposeStatus
from store.state.table import StateChange
from store.state.tables.access_table import DeletePolicyEntries, DeleteUser, PutPolicyEntries, PutUser

if TYPE_CHECKING:
    from store.message_store import MessageStore

ENTRIES_MAX: Final = 4096  # of one user
WordT = TypeVar("WordT", bound=StrEnum)
_SUBJECT: Final = "User:"
_NAME_FAULTS: Final = {ResourceType.TOPIC: topic_fault, ResourceType.GROUP: group_fault}
_OF_PROXIES: Final[Mapping[str, Callable[..., Need]]] = {"Topic": topic, "Group": group}
# What a request changes. Raises _Refused, PolicyError.
MakeChanges = Callable[[], Sequence[StateChange]]
# By code: what a request needs, and whether it is administration; None: no such request.
NeedsOf = Callable[[int], tuple[tuple[Need, ...], bool] | None]


class _Refused(Exception):
    """RocketMQ answers NO_PERMISSION for most of what it does not do to a user or policy."""

    def __init__(self, remark: str, code: int = ResponseCode.NO_PERMISSION) -> None:
        super().__init__(remark)
        self.code = code


class AccessAdminProcessor:
    """Invariant: while the table has an enabled super user, no request here takes the last one away.

    Changes are made one after the other: each is checked against what the one before it has left.
    """

    def __init__(self, store: MessageStore, access: AccessCheck, needs_of: NeedsOf) -> None:
        self._store = store
        self._table = store.tables.access_table
        self._access = access
        self._needs_of = needs_of
        self._waiting: deque[tuple[AnyRequest, MakeChanges]] = deque()
        self._is_changing = False

    def tick(self, now_ms: int) -> None:
        """Begins the next change, if none is under way."""
        while self._waiting and not self._is_changing:
            request, make = self._waiting.popleft()
            try:
                changes = make()
            except _Refused as refused:
                request.answer(refused.code, str(refused))
            except PolicyError as error:
                request.answer(ResponseCode.NO_PERMISSION, str(error))
            else:
                self._is_changing = True
                propose_each(self._store, changes, partial(self._changed, request), now_ms)

    def _changed(self, request: AnyRequest, statuses: Sequence[ProposeStatus]) -> None:
        self._is_changing = False
        answer_all_applied(request)(statuses)

    # -- users -------------------------------------------------------------------------------------------------

    def create_user(
        self, request: Request[headers.CreateUserRequestHeader], body: UserInfo, now_ms: int
    ) -> None:
        def make() -> Sequence[StateChange]:
            username = _name(request.header.username)
            user_type = _of(UserType, body.user_type) or UserType.NORMAL
            if user_type is UserType.SUPER and not request.sender.is_super:
                raise _Refused("The super user can only be create by super user", ResponseCode.SYSTEM_ERROR)
            if not (body.password or "").strip():
                raise _Refused("password can not be blank")
            _check_password(body.password)
            if username in self._table.users:
                raise _Refused("The user is existed")
            status = _of(UserStatus, body.user_status) or UserStatus.ENABLE
            return [PutUser(username, body.password, user_type, status)]

        self._change(request, make, now_ms)

    def update_user(
        self, request: Request[headers.UpdateUserRequestHeader], body: UserInfo, now_ms: int
    ) -> None:
        def make() -> Sequence[StateChange]:
            username = _name(request.header.username)
            user_type, status = _of(UserType, body.user_type), _of(UserStatus, body.user_status)
            words = "The super user can only be update by super user"
            if user_type is UserType.SUPER and not request.sender.is_super:
                raise _Refused(words, ResponseCode.SYSTEM_ERROR)
            _check_password(body.password)
            old = self._table.users.get(username)
            if old is None:
                raise _Refused("The user is not exist")
            if old.is_super and not request.sender.is_super:
                raise _Refused(words)
            if user_type is UserType.NORMAL or status is UserStatus.DISABLE:
                self._check_not_the_last_super_user(old)
            return [PutUser(username, body.password or None, user_type, status)]

        self._change(request, make, now_ms)

    def delete_user(self, request: Request[headers.DeleteUserRequestHeader], now_ms: int) -> None:
        def make() -> Sequence[StateChange]:
            old = self._table.users.get(_name(request.header.username))
            if old is None:
                return []
            if old.is_super and not request.sender.is_super:
                raise _Refused("The super user can only be update by super user")
            self._check_not_the_last_super_user(old)
            return [DeleteUser(old.username)]

        self._change(request, make, now_ms)

    def get_user(self, request: Request[headers.GetUserRequestHeader], now_ms: int) -> None:
        if not request.header.username:
            request.answer(ResponseCode.INVALID_PARAMETER, "The username is blank")
            return
        user = self._table.users.get(request.header.username)
        request.answer(body=b"" if user is None else _shown_user(user, request.sender))

    def list_users(self, request: Request[headers.ListUsersRequestHeader], now_ms: int) -> None:
        wanted = request.header.filter or ""
        users = sorted(self._table.users.values(), key=lambda user: user.username)
        shown = [_shown_user(user, request.sender) for user in users if wanted in user.username]
        request.answer(body=encode_list(shown))

    def _check_not_the_last_super_user(self, user: User) -> None:
        """Without one those of the conf would count again, or nobody could change anything."""
        supers = [other for other in self._table.users.values() if other.is_super and other.is_enabled]
        if supers == [user]:
            raise _Refused(
                f"{user.username} is the last super user that is enabled: make another one first",
                ResponseCode.SYSTEM_ERROR,
            )

    # -- policies ----------------------------------------------------------------------------------------------

    def put_acl(
        self,
        request: Request[headers.CreateAclRequestHeader] | Request[headers.UpdateAclRequestHeader],
        body: AclInfo,
        now_ms: int,
    ) -> None:
        """To create and to update is one thing in RocketMQ, too."""

        def make() -> Sequence[StateChange]:
            username = _user_of(body.subject or request.header.subject)
            changes: list[PutPolicyEntries] = []
            for policy in body.policies or ():
                entries = [
                    make_entry(entry.resource, entry.actions, entry.source_ips, entry.decision)
                    for entry in policy.entries or ()
                ]
                for entry in entries:
                    _check_resource(entry.resource)
                if entries:
                    policy_type = _of(PolicyType, policy.policy_type) or PolicyType.CUSTOM
                    changes.append(PutPolicyEntries(username, policy_type, tuple(entries)))
            if not changes:
                raise _Refused("The policies is empty.")
            if username not in self._table.users:
                raise _Refused(f"The subject of {_SUBJECT}{username} is not exist.")
            self._check_count(username, changes)
            return changes

        self._change(request, make, now_ms)

    def _check_count(self, username: str, changes: Sequence[PutPolicyEntries]) -> None:
        """All entries of a user are read again after each change of one."""
        policies = self._table.policies.get(username, Policies({}, {}))
        named = {
            (policy_type, resource)
            for policy_type in PolicyType
            for resource in policies.of_type(policy_type)
        }
        named |= {(change.policy_type, entry.resource) for change in changes for entry in change.entries}
        if len(named) > ENTRIES_MAX:
            raise _Refused(
                f"{username} would have {len(named)} entries, {ENTRIES_MAX} are allowed: name prefixes (Topic:orders-*)"
            )

    def delete_acl(self, request: Request[headers.DeleteAclRequestHeader], now_ms: int) -> None:
        def make() -> Sequence[StateChange]:
            header = request.header
            username = _user_of(header.subject)
            if username not in self._table.users:
                raise _Refused("The subject is not exist.")
            if username not in self._table.policies:
                raise _Refused("The acl is not exist.")
            policy_type = _of(PolicyType, header.policy_type) or PolicyType.CUSTOM
            resource = str(parse_pattern(header.resource)) if header.resource else None
            return [DeletePolicyEntries(username, policy_type, resource)]

        self._change(request, make, now_ms)

    def get_acl(self, request: Request[headers.GetAclRequestHeader], now_ms: int) -> None:
        try:
            username = _user_of(request.header.subject)
            if username not in self._table.users:
                raise _Refused("The subject is not exist.")
        except _Refused as refused:
            request.answer(refused.code, str(refused))
            return
        policies = self._table.policies.get(username)
        request.answer(body=b"" if policies is None else _shown_policies(username, policies, ""))

    def list_acls(self, request: Request[headers.ListAclsRequestHeader], now_ms: int) -> None:
        subject, resource = request.header.subject_filter or "", request.header.resource_filter or ""
        shown = [
            _shown_policies(username, policies, resource)
            for username, policies in sorted(self._table.policies.items())
            if subject in f"{_SUBJECT}{username}"
        ]
        request.answer(body=encode_list([acl for acl in shown if acl.policies]))

    # -- why ---------------------------------------------------------------------------------------------------

    def explain_access(self, request: Request[headers.ExplainAccessRequestHeader], now_ms: int) -> None:
        header = request.header
        found = self._needs_of(header.request_code)
        if found is None:
            request.answer(
                ResponseCode.INVALID_PARAMETER, f"this broker serves no code {header.request_code}"
            )
            return
        needs, is_administration = found
        try:
            resources = _resources_of(header.resource)
        except PolicyError as error:
            request.answer(ResponseCode.INVALID_PARAMETER, str(error))
            return
        source_ip = header.source_ip or request.sender.source_ip
        explained = self._access.explain(
            header.request_code, needs, is_administration, header.username, resources, source_ip
        )
        verdicts = [_shown_verdict(needed, verdict) for needed, verdict in explained]
        outcomes = {verdict.allowed for verdict in verdicts}
        allowed = False if False in outcomes else None if None in outcomes else True
        request.answer(body=AccessExplanation(allowed=allowed, verdicts=verdicts))

    def check_access(
        self, request: Request[CommandHeader], body: CheckAccessRequestBody, now_ms: int
    ) -> None:
        answer = CheckAccessResponseBody()
        try:
            asked = [_asked(need) for need in body.needs]
            user = self._access.signer(body.username, body.content, body.signature)
            answer.authenticated = True
            self._access.check_elsewhere(Sender(body.source_ip, user), asked)
            answer.allowed = True
        except AccessRefused as refused:
            answer.remark = str(refused)
        except PolicyError as error:
            request.answer(ResponseCode.INVALID_PARAMETER, str(error))
            return
        request.answer(body=answer)

    # -- audit -------------------------------------------------------------------------------------------------

    def get_audit(self, request: Request[headers.GetAuditRequestHeader], now_ms: int) -> None:
        """As far as this member has applied it."""
        since_ms = request.header.since_ms
        rows = [row for row in self._store.tables.audit_table.audited if row.at_ms >= since_ms]
        request.answer(
            body=AuditBody(
                requests=[
                    AuditedRequest(
                        at_ms=row.at_ms,
                        username=row.note.username,
                        source_ip=row.note.source_ip,
                        code=row.note.code,
                        what=row.note.what,
                    )
                    for row in rows
                ]
            )
        )

    def _change(self, request: AnyRequest, make: MakeChanges, now_ms: int) -> None:
        self._waiting.append((request, make))
        self.tick(now_ms)


def _name(username: str | None) -> str:
    if not (username or "").strip():
        raise _Refused("The username is blank", ResponseCode.INVALID_PARAMETER)
    assert username is not None, "not blank"
    if len(username) > NAME_LENGTH_MAX or not username.isprintable():
        raise _Refused(
            f"a user's name has at most {NAME_LENGTH_MAX} characters, all of which can be seen",
            ResponseCode.INVALID_PARAMETER,
        )
    return username


def _check_password(password: str | None) -> None:
    if password is not None and (len(password) > NAME_LENGTH_MAX or not password.isprintable()):
        raise _Refused(
            f"a password has at most {NAME_LENGTH_MAX} characters, all of which can be seen",
            ResponseCode.INVALID_PARAMETER,
        )


def _user_of(subject: str | None) -> str:
    kind, _, username = (subject or "").partition(":")
    if f"{kind}:".lower() != _SUBJECT.lower() or not username.strip():
        raise _Refused("The subject type is null.")
    return username


def _check_resource(key: str) -> None:
    """Raises _Refused for what no request is about: a refusal that is written so would be none, without a word."""
    pattern = parse_pattern(key)
    if pattern.match is Match.ANY or pattern.type not in _NAME_FAULTS:
        return
    if pattern.type is ResourceType.TOPIC and pattern.name.startswith(RETRY_GROUP_TOPIC_PREFIX):
        group_name = key.partition(RETRY_GROUP_TOPIC_PREFIX)[2].partition("+")[0]
        raise _Refused(
            f"{key} would never count: a retry topic stands for its group, write Group:{group_name}"
        )
    if fault := _NAME_FAULTS[pattern.type](pattern.name):
        raise _Refused(f"{key!r} would never count: {fault}")


def _of(words: type[WordT], text: str | None) -> WordT | None:
    """RocketMQ takes a word that it does not know for none, and so a misspelt `Super` for a normal user."""
    if not text:
        return None
    for word in words:
        if word.value.lower() == text.lower():
            return word
    allowed = ", ".join(word.value for word in words)
    raise _Refused(f"{text!r} is none of {allowed}", ResponseCode.INVALID_PARAMETER)


def _asked(need: AccessNeed) -> tuple[Need, str]:
    """Raises PolicyError."""
    kind, _, name = need.resource.partition(":")
    if kind not in _OF_PROXIES:
        raise PolicyError(f"The resource {need.resource!r} is none: write Topic:name or Group:name")
    if not need.actions or not all(word in set(Action) for word in need.actions):
        raise PolicyError(f"{need.actions} are no actions")
    return _OF_PROXIES[kind](*map(Action, need.actions)), name


def _resources_of(text: str | None) -> dict[ResourceType, Resource]:
    """Of `Topic:orders,Group:billing`. Raises PolicyError."""
    patterns = [parse_pattern(part.strip()) for part in text.split(",")] if text else []
    for pattern in patterns:
        if pattern.match is not Match.LITERAL:
            raise PolicyError(f"{pattern} stands for many: name a single one, such as Topic:orders")
    return {pattern.type: Resource(pattern.type, pattern.name) for pattern in patterns}


def _shown_verdict(needed: str, verdict: Verdict | None) -> AccessVerdict:
    if verdict is None:
        return AccessVerdict(
            needed=needed, allowed=None, rule=f"not known: name {needed.partition(' on ')[2]}, too"
        )
    return AccessVerdict(needed=needed, allowed=verdict.is_allowed, rule=verdict.rule)


def _shown_user(user: User, sender: Sender) -> UserInfo:
    # Two groups of a cluster are compared by it. Whoever guesses a password has to try one of 65536 guesses only, so it
    # is for those alone that can read the passwords in the log as well.
    password_sum = hashlib.sha256(f"{user.username}\0{user.password}".encode(errors="replace")).digest()[:2]
    return UserInfo(
        username=user.username,
        user_type=user.user_type.value,
        user_status=user.user_status.value,
        password_sum=password_sum.hex() if sender.is_super else None,
    )


def _shown_policies(username: str, policies: Policies, resource_filter: str) -> AclInfo:
    shown = []
    for policy_type in PolicyType:
        entries = [
            _shown_entry(entry)
            for resource, entry in policies.of_type(policy_type).items()
            if resource_filter in resource
        ]
        if entries:
            shown.append(PolicyInfo(policy_type=policy_type.value, entries=entries))
    return AclInfo(subject=f"{_SUBJECT}{username}", policies=shown)


def _shown_entry(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=entry.resource,
        actions=[action.value for action in entry.actions],
        source_ips=list(entry.source_ips) or None,
        decision=entry.decision.value,
    )
