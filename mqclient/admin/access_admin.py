"""Users and policies, as a tool looks at and changes them. Changes go to leaders: each group has a table of its own."""

from __future__ import annotations

from collections.abc import Sequence

from mqclient.admin.admin_calls import AdminCalls
from remoting.bodies.auth_bodies import (
    AccessExplanation,
    AclInfo,
    AuditBody,
    AuditedRequest,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)
from remoting.bodies.bodies import BodyT, from_json_value, loads_fastjson
from remoting.codes import RequestCode
from remoting.errors import RemotingBodyError
from remoting.headers import auth_headers
from remoting.headers.headers import CommandHeader


class AccessAdmin:
    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def create_user(self, address: str, user: UserInfo) -> None:
        header = auth_headers.CreateUserRequestHeader(username=user.username)
        await self._change(address, RequestCode.AUTH_CREATE_USER, header, user.encode())

    async def update_user(self, address: str, user: UserInfo) -> None:
        """What is None stays as it is."""
        header = auth_headers.UpdateUserRequestHeader(username=user.username)
        await self._change(address, RequestCode.AUTH_UPDATE_USER, header, user.encode())

    async def delete_user(self, address: str, username: str) -> None:
        """With all policies. Nothing is wrong with one that is not there."""
        header = auth_headers.DeleteUserRequestHeader(username=username)
        await self._change(address, RequestCode.AUTH_DELETE_USER, header)

    async def users(self, address: str, name_filter: str = "") -> list[UserInfo]:
        """Those with this in their names."""
        header = auth_headers.ListUsersRequestHeader(filter=name_filter or None)
        return await self._list(address, RequestCode.AUTH_LIST_USER, header, UserInfo)

    async def put_policy(
        self, address: str, subject: str, policy_type: str, entries: Sequence[PolicyEntryInfo]
    ) -> None:
        """Each entry takes the place of the one about the same resource. `subject`: `User:name`."""
        body = AclInfo(subject=subject, policies=[PolicyInfo(policy_type=policy_type, entries=list(entries))])
        header = auth_headers.UpdateAclRequestHeader(subject=subject)
        await self._change(address, RequestCode.AUTH_UPDATE_ACL, header, body.encode())

    async def delete_policy(self, address: str, subject: str, policy_type: str, resource: str | None) -> None:
        """Without a resource: all policies of the subject."""
        header = auth_headers.DeleteAclRequestHeader(
            subject=subject, policy_type=policy_type, resource=resource
        )
        await self._change(address, RequestCode.AUTH_DELETE_ACL, header)

    async def acls(self, address: str, subject_filter: str = "", resource_filter: str = "") -> list[AclInfo]:
        header = auth_headers.ListAclsRequestHeader(
            subject_filter=subject_filter or None, resource_filter=resource_filter or None
        )
        return await self._list(address, RequestCode.AUTH_LIST_ACL, header, AclInfo)

    async def explain(
        self, address: str, username: str, code: int, resource: str | None, source_ip: str | None
    ) -> AccessExplanation:
        """What would become of a request of that code about that resource, and which rules say so."""
        header = auth_headers.ExplainAccessRequestHeader(
            username=username, request_code=code, resource=resource, source_ip=source_ip
        )
        answer = await self._calls.call(address, RequestCode.EXPLAIN_ACCESS, header)
        return answer.read(AccessExplanation)

    async def audit(self, address: str, since_ms: int = 0) -> list[AuditedRequest]:
        """Administrative requests that this broker's group has taken since then, the newest last."""
        header = auth_headers.GetAuditRequestHeader(since_ms=since_ms)
        answer = await self._calls.call(address, RequestCode.GET_AUDIT, header)
        return answer.read(AuditBody).requests

    async def _change(
        self, address: str, code: RequestCode, header: CommandHeader, body: bytes = b""
    ) -> None:
        await self._calls.call(address, code, header, body)

    async def _list(
        self, address: str, code: RequestCode, header: CommandHeader, kind: type[BodyT]
    ) -> list[BodyT]:
        answer = await self._calls.call(address, code, header)
        if not answer.body:
            return []
        try:
            items = loads_fastjson(bytes(answer.body))
            if not isinstance(items, list):
                raise answer.unreadable("a body that is no list")
            return [from_json_value(kind, item) for item in items]
        except RemotingBodyError as error:
            raise answer.unreadable(str(error)) from error
