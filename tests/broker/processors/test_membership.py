"""Operators look who belongs to the group, and change it: each outcome has its answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from one_broker import OPEN_ACCESS, RecordingChannel

from broker.answers import Answers, Request
from broker.processors.admin.membership_processor import MembershipProcessor
from dledger.core.membership import Membership, Seat
from dledger.core.output import AppendStatus
from dledger.core.refusal import Refusal, RefusalReason
from remoting.bodies.admin_bodies import ListMembersResponseBody
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, request
from remoting.headers import headers
from remoting.headers.admin_headers import AddMemberRequestHeader, RemoveMemberRequestHeader

MEMBERSHIP = Membership({"n0": Seat(b"\x01", "h:1")}, {"n3": Seat(b"", "h:4")})


@dataclass
class GroupStore:
    """What a store and its replica say of the group."""

    refusal: Refusal | None = None
    membership: Membership = MEMBERSHIP
    membership_index: int = 7
    is_membership_committed: bool = False
    watermarks: dict[str, int] = field(default_factory=lambda: {"n0": 9})
    leader_id: str = "n0"
    term: int = 3
    changes: list[tuple[str, ...]] = field(default_factory=list)
    on_done: Callable[[AppendStatus], None] | None = None

    @property
    def replica(self) -> GroupStore:
        return self

    @property
    def member(self) -> GroupStore:
        return self

    def add_member(self, peer, address, on_done, now_ms):
        self.changes.append((peer, address))
        self.on_done = on_done
        return self.refusal

    def remove_member(self, peer, on_done, now_ms):
        self.changes.append((peer,))
        self.on_done = on_done
        return self.refusal


ADD = (RequestCode.ADD_MEMBER, {"memberId": "n3", "address": "host:40914"})
REMOVE = (RequestCode.REMOVE_MEMBER, {"memberId": "n3"})


def ask(
    store: GroupStore, code: int, fields: dict[str, str], *, is_group: bool = True, has_secret: bool = True
) -> Callable[[], RemotingCommand | None]:
    """A function that tells the answer, once there is one."""
    processor = MembershipProcessor(store, is_group=is_group, has_secret=has_secret)  # type: ignore[arg-type]
    channel = RecordingChannel()
    answers = Answers(channel)
    header_type, handle = {
        RequestCode.LIST_MEMBERS: (headers.CommandHeader, processor.list_members),
        RequestCode.ADD_MEMBER: (AddMemberRequestHeader, processor.add_member),
        RequestCode.REMOVE_MEMBER: (RemoveMemberRequestHeader, processor.remove_member),
    }[code]
    command = request(code, fields, opaque=7)
    handle(Request(command, headers.decode(header_type, fields), channel, answers, OPEN_ACCESS), 0)
    answers.flush()

    def answer() -> RemotingCommand | None:
        answers.flush()
        return channel.response_to(7)

    return answer


def test_without_a_secret_no_member_beyond_this_machine_is_added():
    store = GroupStore()
    for address in ("10.0.0.1:40914", "name:40914"):
        answered = ask(
            store, RequestCode.ADD_MEMBER, {"memberId": "n3", "address": address}, has_secret=False
        )()
        assert answered is not None
        assert answered.code == ResponseCode.INVALID_PARAMETER
        assert f"{address} is no loopback IP address" in str(answered.remark)
    assert store.changes == []
    ask(store, RequestCode.ADD_MEMBER, {"memberId": "n3", "address": "[::1]:40914"}, has_secret=False)
    assert store.changes == [("n3", "[::1]:40914")]


@pytest.mark.parametrize(("code", "fields"), [ADD, REMOVE])
def test_a_change_is_answered_when_it_is_committed_and_not_before(code, fields):
    store = GroupStore()
    answer = ask(store, code, fields)
    assert store.changes == [tuple(fields.values())]
    assert answer() is None
    assert store.on_done is not None
    store.on_done(AppendStatus.SUCCESS)
    answered = answer()
    assert answered is not None
    assert answered.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(("code", "fields"), [ADD, REMOVE])
def test_an_unknown_outcome_is_no_refusal(code, fields):
    store = GroupStore()
    answer = ask(store, code, fields)
    assert store.on_done is not None
    store.on_done(AppendStatus.UNKNOWN)
    answered = answer()
    assert answered is not None
    assert answered.code == ResponseCode.SYSTEM_ERROR
    assert str(answered.remark).startswith("outcome unknown")


@pytest.mark.parametrize(("code", "fields"), [ADD, REMOVE])
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        (RefusalReason.NOT_LEADER, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RefusalReason.LEADER_NOT_READY, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.LEADER_TRANSFERRING, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.CHANGE_IN_PROGRESS, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.MEMBERS_UNCHANGED, ResponseCode.INVALID_PARAMETER),
        (RefusalReason.MEMBERS_TOO_LARGE, ResponseCode.INVALID_PARAMETER),
        (RefusalReason.MEMBER_OUTDATED, ResponseCode.ILLEGAL_OPERATION),
        (RefusalReason.NOT_CAUGHT_UP, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.NO_LIVE_MAJORITY, ResponseCode.ILLEGAL_OPERATION),
        (RefusalReason.DISK_FULL, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RefusalReason.STOPPED, ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
def test_a_refusal_is_answered_at_once_with_its_reason(code, fields, reason, expected):
    answered = ask(GroupStore(refusal=Refusal(reason, "because")), code, fields)()
    assert answered is not None
    assert (answered.code, answered.remark) == (expected, "because")


@pytest.mark.parametrize(
    ("code", "fields", "remark"),
    [
        (RequestCode.ADD_MEMBER, {"memberId": "n3", "address": "nowhere"}, "'nowhere' has no port"),
        (RequestCode.ADD_MEMBER, {"memberId": "n-3", "address": "h:1"}, "'n-3' is no member id"),
        (RequestCode.REMOVE_MEMBER, {"memberId": ""}, "'' is no member id"),
        (RequestCode.REMOVE_MEMBER, {"memberId": "n" * 65}, "1 to 64 characters"),
    ],
)
def test_what_can_be_no_member_is_refused_before_the_group_is_asked(code, fields, remark):
    store = GroupStore()
    answered = ask(store, code, fields)()
    assert answered is not None
    assert answered.code == ResponseCode.INVALID_PARAMETER
    assert remark in str(answered.remark)
    assert not store.changes


@pytest.mark.parametrize(("code", "fields"), [ADD, REMOVE, (RequestCode.LIST_MEMBERS, {})])
def test_a_plain_broker_is_no_member_of_a_group(code, fields):
    store = GroupStore()
    answered = ask(store, code, fields, is_group=False)()
    assert answered is not None
    assert (answered.code, answered.body) == (ResponseCode.INVALID_PARAMETER, b"")
    assert "a plain broker, no member of a group" in str(answered.remark)
    assert not store.changes


def test_the_list_names_roles_disks_and_what_voters_hold():
    answered = ask(GroupStore(), RequestCode.LIST_MEMBERS, {})()
    assert answered is not None
    body = ListMembersResponseBody.decode(answered.body)
    assert (body.leader_id, body.term, body.index, body.is_committed) == ("n0", 3, 7, False)
    assert [(member.id, member.role, member.address, member.acknowledged) for member in body.members] == [
        ("n0", "voter", "h:1", 9),
        ("n3", "learner", "h:4", None),
    ]
