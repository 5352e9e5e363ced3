"""Who belongs to the group, for operators: they look, have a member added, have one removed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.answers import AnyRequest, Request
from broker.leadership.leader_refusals import PLAIN_BROKER, refuse
from dledger.config import parse_peers
from dledger.core.output import AppendStatus
from dledger.errors import DLedgerConfigError
from remoting.address import is_loopback
from remoting.bodies import admin_bodies
from remoting.codes import ResponseCode
from remoting.headers import admin_headers
from remoting.headers.headers import CommandHeader

if TYPE_CHECKING:
    from store.message_store import MessageStore

_MEMBER_ID_LENGTH_MAX = 64


class MembershipProcessor:
    """Invariant: each request is answered once: at once if it is refused, else when the change is committed."""

    def __init__(self, store: MessageStore, *, is_group: bool, has_secret: bool) -> None:
        """`is_group`: not a plain broker, which has no port for peers. `has_secret`: its peers prove theirs."""
        self._store = store
        self._is_group = is_group
        self._has_secret = has_secret

    def list_members(self, request: Request[CommandHeader], now_ms: int) -> None:
        if not self._is_group:
            request.answer(ResponseCode.INVALID_PARAMETER, PLAIN_BROKER)
            return
        store = self._store
        value = store.replica.member.membership
        watermarks = store.replica.member.watermarks
        members = [
            admin_bodies.GroupMember(
                id=peer,
                role=role,
                address=seat.address,
                disk=seat.disk.hex(),
                acknowledged=watermarks.get(peer),
            )
            for role, seats in (("voter", value.voters), ("learner", value.learners))
            for peer, seat in sorted(seats.items())
        ]
        body = admin_bodies.ListMembersResponseBody(
            leader_id=store.leader_id,
            term=store.term,
            index=store.replica.member.membership_index,
            is_committed=store.replica.member.is_membership_committed,
            members=members,
        )
        request.answer(body=body)

    def add_member(self, request: Request[admin_headers.AddMemberRequestHeader], now_ms: int) -> None:
        header = request.header
        fault = self._fault_of(header.member_id)
        if fault is None:
            try:
                (address,) = parse_peers(f"{header.member_id}-{header.address}").values()
                if not self._has_secret and not is_loopback(address.host):
                    fault = (
                        f"{address} is no loopback IP address, and this group has no cluster secret: put the same "
                        "pyDLedgerClusterSecret into the confs of all members first"
                    )
            except DLedgerConfigError as error:
                fault = str(error)
        if fault is not None:
            request.answer(ResponseCode.INVALID_PARAMETER, fault)
            return
        refusal = self._store.replica.add_member(
            header.member_id, header.address, lambda status: _ended(request, status), now_ms
        )
        if refusal is not None:
            refuse(request, refusal)

    def remove_member(self, request: Request[admin_headers.RemoveMemberRequestHeader], now_ms: int) -> None:
        header = request.header
        fault = self._fault_of(header.member_id)
        if fault is not None:
            request.answer(ResponseCode.INVALID_PARAMETER, fault)
            return
        refusal = self._store.replica.remove_member(
            header.member_id, lambda status: _ended(request, status), now_ms
        )
        if refusal is not None:
            refuse(request, refusal)

    def _fault_of(self, member_id: str) -> str | None:
        if not self._is_group:
            return PLAIN_BROKER
        if not member_id or len(member_id) > _MEMBER_ID_LENGTH_MAX or set(member_id) & set("-;"):
            return (
                f"{member_id!r} is no member id; allowed are 1 to {_MEMBER_ID_LENGTH_MAX} characters, none of them "
                "- or ;"
            )
        return None


def _ended(request: AnyRequest, status: AppendStatus) -> None:
    if status is AppendStatus.SUCCESS:
        request.answer()
    else:
        remark = (
            "outcome unknown: no majority has said yet that it holds the change; memberList shows what counts"
        )
        request.answer(ResponseCode.SYSTEM_ERROR, remark)
