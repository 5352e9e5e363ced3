"""Changes of the tables that a tool sends to a follower, passed on to the leader.

RocketMQ's tools delete a topic at each address of a cluster, one after the other, and end at the first refusal. So a
follower has the leader make the change and gives its answer. Where no leader can be asked, it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec.structs import replace

from broker.access.passed_on import PASSED_ON, PassedOn
from broker.answers import AnyRequest
from remoting.frame.command import RemotingCommand

if TYPE_CHECKING:
    from store.message_store import MessageStore

OnLeaderAnswer = Callable[[RemotingCommand | None], None]  # None: surely nothing was changed
AskLeader = Callable[[RemotingCommand, OnLeaderAnswer], None]


class FollowerChanges:
    def __init__(
        self,
        store: MessageStore,
        clock: Callable[[], int],
        passed_on: PassedOn,
        ask_leader: AskLeader | None,
    ) -> None:
        self._store = store
        self._passed_on = passed_on
        self._clock = clock
        self._ask_leader = ask_leader

    def handle(self, request: AnyRequest, handle_here: Callable[[int], None], now_ms: int) -> None:
        """Calls `handle_here(now_ms)` where this member serves, and else answers as the leader does."""
        command = request.command
        if self._store.serving or self._ask_leader is None or PASSED_ON in command.ext_fields:
            handle_here(now_ms)
            return

        def on_answer(answer: RemotingCommand | None) -> None:
            if answer is None:
                handle_here(self._clock())
            else:
                request.answer(answer.code, answer.remark, answer.ext_fields, bytes(answer.body))

        fields = self._passed_on.fields_of(command, request.sender.source_ip)
        # The frame may be gone when it is sent.
        self._ask_leader(replace(command, ext_fields=fields, body=bytes(command.body)), on_answer)
