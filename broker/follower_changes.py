"""Changes of the tables that a tool sends to a follower, passed on to the leader.

RocketMQ's tools delete a topic at each address of a cluster, one after the other, and end at the first refusal. So a
follower has the leader make the change and gives its answer. Where no leader can be asked, it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from broker.answers import Answers, RequestHandler, answer_error
from broker.client_channel import ClientChannel
from disk.disk import DiskError
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from store.errors import StoreError

if TYPE_CHECKING:
    from store.message_store import MessageStore

CHANGE_CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    }
)
# Of our own: a member that has this one from a member does not pass it on again.
PASSED_ON = "passedOn"

OnLeaderAnswer = Callable[[RemotingCommand | None], None]  # None: surely nothing was changed
AskLeader = Callable[[RemotingCommand, OnLeaderAnswer], None]


class FollowerChanges:
    def __init__(self, store: MessageStore, clock: Callable[[], int], ask_leader: AskLeader | None) -> None:
        self._store = store
        self._clock = clock
        self._ask_leader = ask_leader

    def wrapped(self, handler: RequestHandler) -> RequestHandler:
        """Answers as `handler` does where this member serves, and else as the leader does."""

        def handle(answers: Answers, channel: ClientChannel, command: RemotingCommand, now_ms: int) -> None:
            if self._store.serving or self._ask_leader is None or PASSED_ON in command.ext_fields:
                handler(answers, channel, command, now_ms)
                return

            def on_answer(answer: RemotingCommand | None) -> None:
                if answer is not None:
                    body = bytes(answer.body)
                    answers.add(command, answer.code, answer.remark, answer.ext_fields, body)
                    return
                try:
                    handler(answers, channel, command, self._clock())
                except (RemotingError, StoreError, DiskError) as error:
                    answer_error(answers, channel, command, error)

            fields = {**command.ext_fields, PASSED_ON: "true"}
            # The frame may be gone when it is sent.
            self._ask_leader(replace(command, ext_fields=fields, body=bytes(command.body)), on_answer)

        return handle
