"""An operator has the leader hand over: each of the ways in which that ends has its answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from one_broker import OPEN_ACCESS, RecordingChannel

from broker.answers import Answers, Request
from broker.processors.admin.leadership_processor import WAIT_MS_MAX, LeadershipProcessor
from dledger.core.output import Role
from dledger.core.refusal import Refusal, RefusalReason
from remoting.bodies.admin_bodies import LeadershipTransferResponseBody
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, request
from remoting.headers import headers
from remoting.headers.admin_headers import LeadershipTransferRequestHeader


@dataclass
class LeadingStore:
    """What a store and its replica say of the group."""

    role: Role = Role.LEADER
    term: int = 3
    leader_id: str | None = "n0"
    transfer_target: str | None = None
    refusal: Refusal | None = None
    asked_for: str | None = "nothing"

    @property
    def replica(self) -> LeadingStore:
        return self

    @property
    def member(self) -> LeadingStore:
        return self

    def transfer_leadership(self, target: str | None, now_ms: int) -> Refusal | None:
        self.asked_for = target
        if self.refusal is None:
            self.transfer_target = target or "n2"
        return self.refusal


class Asked:
    def __init__(self, store: LeadingStore, fields: dict[str, str]) -> None:
        self.processor = LeadershipProcessor(store, is_group=True)  # type: ignore[arg-type]
        self.channel = RecordingChannel()
        self.command = request(RequestCode.LEADERSHIP_TRANSFER, fields, opaque=7)
        answers = Answers(self.channel)
        header = headers.decode(LeadershipTransferRequestHeader, fields)
        self.processor.transfer_leadership(
            Request(self.command, header, self.channel, answers, OPEN_ACCESS), 0
        )
        answers.flush()

    def answer_at(self, now_ms: int) -> RemotingCommand | None:
        self.processor.tick(now_ms)
        return self.channel.response_to(7)


def test_it_is_answered_when_the_target_leads_and_not_before():
    store = LeadingStore()
    asked = Asked(store, {"transfereeId": "n1"})
    assert asked.answer_at(10) is None
    store.role, store.term, store.leader_id, store.transfer_target = Role.FOLLOWER, 4, None, None
    assert asked.answer_at(20) is None
    store.leader_id = "n1"
    answer = asked.answer_at(30)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS
    assert LeadershipTransferResponseBody.decode(answer.body) == LeadershipTransferResponseBody(
        leader_id="n1", term=4
    )
    asked.answer_at(40)  # once


def test_without_a_member_named_it_goes_to_the_one_that_lacks_least():
    store = LeadingStore()
    asked = Asked(store, {})
    assert store.asked_for is None
    store.role, store.term, store.leader_id, store.transfer_target = Role.FOLLOWER, 4, "n2", None
    answer = asked.answer_at(10)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (RefusalReason.NOT_LEADER, ResponseCode.SERVICE_NOT_AVAILABLE),
        (RefusalReason.LEADER_NOT_READY, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.LEADER_TRANSFERRING, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.NO_SUCH_MEMBER, ResponseCode.INVALID_PARAMETER),
        (RefusalReason.NOT_CAUGHT_UP, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.NOT_FIT, ResponseCode.SYSTEM_BUSY),
        (RefusalReason.STOPPED, ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
def test_a_refusal_is_answered_at_once_with_its_reason(reason, code):
    asked = Asked(LeadingStore(refusal=Refusal(reason, "because")), {"transfereeId": "n1"})
    answer = asked.channel.response_to(7)
    assert answer is not None
    assert (answer.code, answer.remark) == (code, "because")


def test_a_transfer_that_was_given_up_is_an_error_that_may_be_tried_again():
    store = LeadingStore()
    asked = Asked(store, {"transfereeId": "n1"})
    store.transfer_target = None
    answer = asked.answer_at(1_000)
    assert answer is not None
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_BUSY,
        "n1 did not take leadership over in time: n0 leads on",
    )


def test_another_winner_is_named():
    store = LeadingStore()
    asked = Asked(store, {"transfereeId": "n1"})
    store.role, store.term, store.leader_id, store.transfer_target = Role.FOLLOWER, 5, "n2", None
    answer = asked.answer_at(20)
    assert answer is not None
    assert (answer.code, answer.remark) == (
        ResponseCode.SYSTEM_ERROR,
        "n1 did not win the vote: n2 leads term 5",
    )


def test_nobody_heard_of_is_an_unknown_outcome():
    store = LeadingStore()
    asked = Asked(store, {"transfereeId": "n1"})
    store.role, store.term, store.leader_id, store.transfer_target = Role.FOLLOWER, 4, None, None
    assert asked.answer_at(WAIT_MS_MAX - 1) is None
    answer = asked.answer_at(WAIT_MS_MAX)
    assert answer is not None
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert answer.remark is not None
    assert answer.remark.startswith("outcome unknown")
