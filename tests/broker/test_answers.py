"""What a request that makes several changes is told when they do not all end alike."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from one_broker import OPEN_ACCESS, RecordingChannel

from broker.answers import Answers, Request, propose_all
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, request
from remoting.headers.headers import CommandHeader
from store.state.state_proposals import ProposeStatus
from store.state.table import StateChange
from store.state.tables.topic_config_table import DeleteTopic

APPLIED, UNKNOWN, REFUSED, NOT_LEADER, MEMBER_OUTDATED = (
    ProposeStatus.APPLIED,
    ProposeStatus.UNKNOWN,
    ProposeStatus.REFUSED,
    ProposeStatus.NOT_LEADER,
    ProposeStatus.MEMBER_OUTDATED,
)


class Ends:
    """A store whose changes end as they were told to."""

    def __init__(self, statuses: Sequence[ProposeStatus]) -> None:
        self._statuses = list(statuses)

    def propose(self, change: StateChange, on_done: Callable[[ProposeStatus], None], now_ms: int) -> None:
        on_done(self._statuses.pop(0))


def answer_to(*statuses: ProposeStatus) -> RemotingCommand:
    channel = RecordingChannel()
    answers = Answers(channel)
    store: Any = Ends(statuses)
    command = request(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, b"", opaque=7)
    asked = Request(command, CommandHeader(), channel, answers, OPEN_ACCESS)
    propose_all(store, [DeleteTopic(f"T{n}") for n in range(len(statuses))], asked, 0)
    answers.flush()
    (answer,) = channel.received
    return answer


@pytest.mark.parametrize(
    ("statuses", "code", "words"),
    [
        ((REFUSED, REFUSED), ResponseCode.INVALID_PARAMETER, "nothing was changed"),
        ((NOT_LEADER, NOT_LEADER), ResponseCode.SERVICE_NOT_AVAILABLE, "nothing was changed"),
        ((MEMBER_OUTDATED,), ResponseCode.SYSTEM_ERROR, "upgrade it or remove it; nothing was changed"),
        ((UNKNOWN, UNKNOWN), ResponseCode.SYSTEM_ERROR, "outcome unknown"),
        ((APPLIED, REFUSED, APPLIED), ResponseCode.SYSTEM_ERROR, "2 of 3 changes are made"),
        ((APPLIED, UNKNOWN), ResponseCode.SYSTEM_ERROR, "1 of 2 changes are made"),
        ((UNKNOWN, NOT_LEADER), ResponseCode.SYSTEM_ERROR, "outcome unknown"),
        ((APPLIED, APPLIED), ResponseCode.SUCCESS, ""),
    ],
)
def test_nothing_was_changed_is_said_only_where_it_is_true_of_all(
    statuses: Sequence[ProposeStatus], code: ResponseCode, words: str
) -> None:
    answer = answer_to(*statuses)
    assert answer.code == code
    assert words in (answer.remark or "")
