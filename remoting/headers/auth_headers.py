"""Headers of the requests that ask for users and policies, or change them (RocketMQ's access control of 5.3)."""

from __future__ import annotations

from remoting.headers.headers import CommandHeader, Int32, Int64


class CreateUserRequestHeader(CommandHeader, kw_only=True):
    username: str | None = None


class UpdateUserRequestHeader(CommandHeader, kw_only=True):
    username: str | None = None


class DeleteUserRequestHeader(CommandHeader, kw_only=True):
    username: str | None = None


class GetUserRequestHeader(CommandHeader, kw_only=True):
    username: str | None = None


class ListUsersRequestHeader(CommandHeader, kw_only=True):
    """`filter`: a part of the name."""

    filter: str | None = None


class CreateAclRequestHeader(CommandHeader, kw_only=True):
    """`subject`: `User:name`, here as in the others."""

    subject: str | None = None


class UpdateAclRequestHeader(CommandHeader, kw_only=True):
    subject: str | None = None


class DeleteAclRequestHeader(CommandHeader, kw_only=True):
    """Without a resource: all policies of the subject."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(CommandHeader, kw_only=True):
    subject: str | None = None


class ListAclsRequestHeader(CommandHeader, kw_only=True):
    """Both are parts of names."""

    subject_filter: str | None = None
    resource_filter: str | None = None


class ExplainAccessRequestHeader(CommandHeader, kw_only=True):
    """Of our own: what would become of a request with that code about `Topic:orders,Group:billing`, for example."""

    username: str
    request_code: Int32
    resource: str | None = None
    source_ip: str | None = None  # None: where the request comes from


class GetAuditRequestHeader(CommandHeader, kw_only=True):
    """Of our own: the administrative requests that were noted from then on (ms since 1970), the newest last."""

    since_ms: Int64 = 0
