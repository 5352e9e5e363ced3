"""Look-ups whose staleness does harm, behind a read index (pyDLedgerReadIndexEnable; docs/protocol/reads.md).

A leader that is cut off may not know for a second that another one acknowledges. Told an older end of a queue, a
consumer that begins there reads what it was to skip, and one that looks for its offset begins at the wrong place; what
a pull misses in that second comes with the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.answers import Answers, RequestHandler, answer_error
from broker.client_channel import ClientChannel
from disk.disk import DiskError
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from store.errors import StoreError

if TYPE_CHECKING:
    from store.message_store import MessageStore

FRESH_CODES = frozenset(
    {
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.QUERY_CONSUMER_OFFSET,
    }
)


class FreshLookUps:
    def __init__(self, store: MessageStore, clock: Callable[[], int], *, is_enabled: bool) -> None:
        self.is_enabled = is_enabled
        self._store = store
        self._clock = clock

    def wrapped(self, handler: RequestHandler) -> RequestHandler:
        """Answers as `handler` does, once this member has applied all that was committed when the request came."""

        def handle(answers: Answers, channel: ClientChannel, command: RemotingCommand, now_ms: int) -> None:
            if not self.is_enabled:
                handler(answers, channel, command, now_ms)
                return

            def on_done(refusal: str | None) -> None:
                if refusal is not None:
                    remark = f"nothing was looked up: {refusal}"
                    answers.add(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark)
                    return
                try:
                    handler(answers, channel, command, self._clock())
                except (RemotingError, StoreError, DiskError) as error:
                    answer_error(answers, channel, command, error)

            self._store.read_fresh(on_done, now_ms)

        return handle
