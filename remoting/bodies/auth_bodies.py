"""Bodies that tell of users and policies (RocketMQ's access control of 5.3)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from remoting.bodies.bodies import RemotingBody, to_json_value
from remoting.fastjson import dumps_fastjson
from remoting.headers.headers import Int64


class UserInfo(RemotingBody):
    """`password_sum`: of our own, in answers to super users: equal for equal passwords of one user."""

    username: str | None = None
    password: str | None = None  # never in an answer
    user_type: str | None = None
    user_status: str | None = None
    password_sum: str | None = None


class PolicyEntryInfo(RemotingBody):
    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


class PolicyInfo(RemotingBody):
    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


class AclInfo(RemotingBody):
    """`subject`: `User:name`."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


class AccessExplanation(RemotingBody):
    """Answer to EXPLAIN_ACCESS, of our own. `verdicts`: one for each thing that is needed; all must allow it.

    `allowed`: None: that is not known, because a resource is not named.
    """

    allowed: bool | None = None
    verdicts: list[AccessVerdict] = field(default_factory=list)


class AccessNeed(RemotingBody):
    """`resource`: `Topic:orders`, or a group's. One of the actions is enough."""

    resource: str
    actions: list[str]


class CheckAccessRequestBody(RemotingBody):
    """Of our own: whether a client of a proxy is who it says, and may do what it asks for."""

    username: str
    content: str  # what the client has signed
    signature: str  # in base64
    source_ip: str
    needs: list[AccessNeed] = field(default_factory=list)


class CheckAccessResponseBody(RemotingBody):
    """`remark`: why it is refused."""

    authenticated: bool = False
    allowed: bool = False
    remark: str = ""


class AccessVerdict(RemotingBody):
    needed: str
    rule: str
    allowed: bool | None = None


class AuditedRequest(RemotingBody):
    """Of our own. `username`: empty where nobody was asked who they are. `what`: the request's fields and body."""

    at_ms: Int64
    username: str
    source_ip: str
    code: int
    what: str


class AuditBody(RemotingBody):
    requests: list[AuditedRequest] = field(default_factory=list)


def encode_list(items: Sequence[RemotingBody]) -> bytes:
    """As Java answers lists: nothing at all for an empty one."""
    return dumps_fastjson([to_json_value(item) for item in items]) if items else b""
