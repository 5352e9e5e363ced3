"""Commands about users and policies. Each group has a table of its own, so changes go to all leaders of a cluster."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from getpass import getpass
from pathlib import Path
from typing import Annotated

from auth.plain_acl import Account, read_plain_acl
from auth.policy import PolicyEntry, PolicyType
from mq.admin.command import Done, Report, Result, command
from mq.admin.options import BrokerOption, LeadersOption, Option
from mq.admin.targets import done_at_each, leaders_of
from mq.admin.timestamps import HINT, time_or_ago_ms
from mqclient import Admin, AdminError
from remoting.bodies.auth_bodies import AclInfo, PolicyEntryInfo, UserInfo
from remoting.codes import RequestCode

UserOption = Annotated[str, Option("-u", "--username", help="name of the user, its access key")]
SubjectOption = Annotated[str, Option("-s", "--subject", metavar="User:NAME")]
ResourcesOption = Annotated[
    str, Option("-r", "--resources", help="such as Topic:orders,Topic:pay-*,Group:* or *")
]
ActionsOption = Annotated[str, Option("-a", "--actions", help="such as Pub,Sub or All")]
DecisionOption = Annotated[str, Option("-d", "--decision", metavar="Allow|Deny")]
SourceOption = Annotated[str, Option("-i", "--sourceIp", help="addresses or networks, joined by ,")]
PolicyOption = Annotated[str, Option("--policyType", metavar="Custom|Default")]
PasswordOption = Annotated[
    str,
    Option("--passwordFile", metavar="FILE", help="file with the password; - reads it from standard input"),
]


@dataclass(frozen=True, slots=True)
class UserRow:
    """`differs`: what is not the same at all groups."""

    username: str
    type: str
    status: str
    differs: str


@dataclass(frozen=True, slots=True)
class EntryRow:
    subject: str
    policy: str
    resource: str
    actions: str
    source_ips: str
    decision: str
    differs: str


@dataclass(frozen=True, slots=True)
class VerdictRow:
    needed: str
    allowed: bool | None
    rule: str


@dataclass(frozen=True, slots=True)
class AuditRow:
    """`user`: empty where nobody was asked who they are."""

    at_ms: int
    user: str
    source_ip: str
    request: str
    what: str
    broker: str


@command
async def create_user(
    admin: Admin,
    username: UserOption,
    user_type: Annotated[str, Option("-t", "--userType", metavar="Super|Normal")] = "Normal",
    password_file: PasswordOption = "",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Make a user. Its password is read from a file, or asked for: other users of this machine see arguments."""
    user = UserInfo(username=username, password=_password(password_file), user_type=user_type)
    return await _at_leaders(
        admin, broker, cluster, lambda leader: admin.access.create_user(leader, user), f"user {username} made"
    )


@command
async def update_user(
    admin: Admin,
    username: UserOption,
    user_type: Annotated[str, Option("-t", "--userType", metavar="Super|Normal")] = "",
    user_status: Annotated[str, Option("-s", "--userStatus", metavar="enable|disable")] = "",
    password_file: PasswordOption = "",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Change a user; what is not named stays as it is."""
    password = _password(password_file) if password_file else None
    user = UserInfo(
        username=username,
        password=password,
        user_type=user_type or None,
        user_status=user_status or None,
    )
    return await _at_leaders(
        admin,
        broker,
        cluster,
        lambda leader: admin.access.update_user(leader, user),
        f"user {username} changed",
    )


@command
async def delete_user(
    admin: Admin, username: UserOption, broker: BrokerOption = "", cluster: LeadersOption = ""
) -> Result:
    """Delete a user with all policies."""
    return await _at_leaders(
        admin,
        broker,
        cluster,
        lambda leader: admin.access.delete_user(leader, username),
        f"user {username} deleted",
    )


@command
async def get_user(
    admin: Admin, username: UserOption, broker: BrokerOption = "", cluster: LeadersOption = ""
) -> Result:
    """One user, as the groups of a cluster have it. No password is shown."""
    rows = await _users(admin, broker, cluster, username)
    return [row for row in rows if row.username == username]


@command
async def list_user(
    admin: Admin,
    name_filter: Annotated[str, Option("-f", "--filter", help="a part of the name")] = "",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Users, and where the groups of a cluster have them otherwise."""
    return await _users(admin, broker, cluster, name_filter)


async def _users(admin: Admin, broker: str, cluster: str, name_filter: str) -> list[UserRow]:
    leaders = await leaders_of(admin, broker, cluster)
    told = await asyncio.gather(*(admin.access.users(leader, name_filter) for leader in leaders))
    by_leader = [{user.username or "": user for user in users} for users in told]
    rows = []
    for username in sorted({name for users in by_leader for name in users}):
        found = [users.get(username) for users in by_leader]
        first = next(user for user in found if user is not None)
        rows.append(
            UserRow(username, first.user_type or "", first.user_status or "", _differs(leaders, found))
        )
    return rows


def _differs(leaders: Sequence[str], found: Sequence[object | None]) -> str:
    """Where it is missing, or else where it is not as at the first leader."""
    missing = [leader for leader, item in zip(leaders, found, strict=True) if item is None]
    if missing:
        return f"missing at {', '.join(missing)}"
    other = [leader for leader, item in zip(leaders, found, strict=True) if item != found[0]]
    return f"{leaders[0]} has it otherwise than {', '.join(other)}" if other else ""


@command
async def create_acl(
    admin: Admin,
    subject: SubjectOption,
    resources: ResourcesOption,
    actions: ActionsOption,
    decision: DecisionOption,
    source_ip: SourceOption = "",
    policy_type: PolicyOption = "Custom",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Allow or deny a user something. An entry about the same resource is replaced."""
    entries = [
        PolicyEntryInfo(
            resource=resource,
            actions=_parts(actions),
            source_ips=_parts(source_ip) or None,
            decision=decision,
        )
        for resource in _parts(resources)
    ]
    return await _at_leaders(
        admin,
        broker,
        cluster,
        lambda leader: admin.access.put_policy(leader, subject, policy_type, entries),
        f"{decision} {actions} on {resources} for {subject}",
    )


update_acl = create_acl


@command
async def delete_acl(
    admin: Admin,
    subject: SubjectOption,
    resources: Annotated[
        str, Option("-r", "--resources", help="without it, all of the user's policies")
    ] = "",
    policy_type: PolicyOption = "Custom",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Take entries away from a user."""

    async def delete(leader: str) -> None:
        for resource in _parts(resources) or (None,):
            await admin.access.delete_policy(leader, subject, policy_type, resource)

    return await _at_leaders(
        admin, broker, cluster, delete, f"policies of {subject} deleted: {resources or 'all'}"
    )


@command
async def get_acl(
    admin: Admin, subject: SubjectOption, broker: BrokerOption = "", cluster: LeadersOption = ""
) -> Result:
    """The policies of one user."""
    rows = await _entries(admin, broker, cluster, subject, "")
    return [row for row in rows if row.subject == subject]


@command
async def list_acl(
    admin: Admin,
    subject: Annotated[str, Option("-s", "--subject", help="a part of User:NAME")] = "",
    resource: Annotated[str, Option("-r", "--resource", help="a part of the resource")] = "",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Policies, and where the groups of a cluster have them otherwise."""
    return await _entries(admin, broker, cluster, subject, resource)


async def _entries(admin: Admin, broker: str, cluster: str, subject: str, resource: str) -> list[EntryRow]:
    leaders = await leaders_of(admin, broker, cluster)
    told = await asyncio.gather(*(admin.access.acls(leader, subject, resource) for leader in leaders))
    by_leader = [_by_key(acls) for acls in told]
    rows = []
    for key in sorted({key for entries in by_leader for key in entries}):
        found = [entries.get(key) for entries in by_leader]
        entry = next(item for item in found if item is not None)
        rows.append(
            EntryRow(
                *key,
                ",".join(entry.actions or ()),
                ",".join(entry.source_ips or ()),
                entry.decision or "",
                _differs(leaders, found),
            )
        )
    return rows


def _by_key(acls: Sequence[AclInfo]) -> dict[tuple[str, str, str], PolicyEntryInfo]:
    return {
        (acl.subject or "", policy.policy_type or "", entry.resource or ""): entry
        for acl in acls
        for policy in acl.policies or ()
        for entry in policy.entries or ()
    }


@command
async def explain_access(
    admin: Admin,
    username: UserOption,
    code: Annotated[str, Option("--code", help="request code, such as 310 or SEND_MESSAGE_V2")],
    resource: Annotated[
        str, Option("-r", "--resource", help="what the request is about, such as Topic:orders,Group:billing")
    ] = "",
    source_ip: Annotated[
        str, Option("-i", "--sourceIp", help="address that asks; without it, this one")
    ] = "",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Say whether a user may make a request, and which rule decides."""
    leader, *_ = await leaders_of(admin, broker, cluster)
    found = await admin.access.explain(leader, username, _code(code), resource or None, source_ip or None)
    rows = [VerdictRow(verdict.needed, verdict.allowed, verdict.rule) for verdict in found.verdicts]
    ends = {True: "allowed", False: "refused", None: "not known: more must be named with -r"}
    return Report(rows, f"\n{ends[found.allowed]}")


def _name_of(code: int) -> str:
    """A later release may have others."""
    return RequestCode(code).name if code in set(RequestCode) else str(code)


def _code(text: str) -> int:
    if text.isdecimal():
        return int(text)
    if text.upper() not in RequestCode.__members__:
        raise ValueError(f"{text} is no request code: give its number or its name in RocketMQ's RequestCode")
    return RequestCode[text.upper()].value


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _password(path: str) -> str:
    """Raises ValueError."""
    if not path:
        if not sys.stdin.isatty():
            raise ValueError("give the password with --passwordFile FILE; - is standard input")
        password = getpass("password: ")
    elif path == "-":
        password = sys.stdin.readline().strip()
    else:
        try:
            password = Path(path).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ValueError(f"password file {path}: {error.strerror}") from None
    if not password:
        raise ValueError("the password is empty")
    return password


async def _at_leaders(
    admin: Admin, broker: str, cluster: str, change: Callable[[str], Awaitable[object]], what: str
) -> Result:
    return await done_at_each(await leaders_of(admin, broker, cluster), change, what)


@command
async def import_plain_acl(
    admin: Admin,
    file: Annotated[Path, Option("-f", "--file", metavar="plain_acl.yml")],
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Make users and policies of a file of access control 1.0.

    Users and policies that are there already stay as they are, so it may be run again after a failure.
    """
    acl = read_plain_acl(file.read_text(encoding="utf-8"))
    done = [Done(str(file), f"{key} is left out: it let requests pass unsigned") for key in acl.left_out]
    failed: dict[str, str] = {}
    for leader in await leaders_of(admin, broker, cluster):
        left = list(acl.accounts)
        try:
            async for line in _imported(admin, leader, acl.accounts):
                done.append(Done(leader, line))
                del left[0]
        except AdminError as error:
            names = ", ".join(account.user.username for account in left)
            failed[leader] = (
                f"{error}; not imported there: {names}. Once that is mended, run the command again"
            )
    return Report(done, silent=failed)


async def _imported(admin: Admin, leader: str, accounts: Sequence[Account]) -> AsyncIterator[str]:
    """Import one account after the other; yields what was done for each. Raises AdminError."""
    known = {user.username for user in await admin.access.users(leader)}
    policies = {
        (acl.subject, policy.policy_type)
        for acl in await admin.access.acls(leader)
        for policy in acl.policies or ()
    }
    for account in accounts:
        user, what = account.user, "was there already"
        if user.username not in known:
            made = UserInfo(username=user.username, password=user.password, user_type=user.user_type.value)
            await admin.access.create_user(leader, made)
            what = "".join(("made", *(f", {key} left out" for key in account.left_out)))
        for policy_type in PolicyType:
            entries = account.policies.of_type(policy_type).values()
            policy = f"User:{user.username}", policy_type.value
            if entries and policy not in policies:
                await admin.access.put_policy(leader, *policy, [_entry_info(entry) for entry in entries])
                if user.username in known:
                    what += f", {policy_type.value} policy made"
        yield f"user {user.username} {what}"


def _entry_info(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        resource=entry.resource,
        actions=list(entry.actions),
        source_ips=list(entry.source_ips) or None,
        decision=entry.decision.value,
    )


@command
async def audit(
    admin: Admin,
    since: Annotated[
        str, Option("--since", metavar="TIME", help=f"{HINT}; or 30m, 2h, 7d: so long ago")
    ] = "0",
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Who asked for which change, when and from where. Each member knows the requests of its whole group."""
    since_ms = time_or_ago_ms(since)
    addresses = await leaders_of(admin, broker, cluster)
    told = await asyncio.gather(*(admin.access.audit(address, since_ms) for address in addresses))
    return [
        AuditRow(
            request.at_ms, request.username, request.source_ip, _name_of(request.code), request.what, address
        )
        for address, requests in zip(addresses, told, strict=True)
        for request in requests
    ]
