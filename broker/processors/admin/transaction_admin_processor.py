"""What tools ask of transactions: how many are undecided, and what comes next of one. Only the leader knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.answers import Request
from remoting.bodies.admin_bodies import PendingTransactions, PendingTransactionsOfTopic
from remoting.codes import ResponseCode
from remoting.headers import admin_headers
from remoting.headers.headers import CommandHeader

if TYPE_CHECKING:
    from store.message_store import MessageStore

_NOT_SERVING = "this member does not serve as leader now: ask the leader"


class TransactionAdminProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def get_pending(self, request: Request[CommandHeader], now_ms: int) -> None:
        if not self._store.serving:
            request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_SERVING)
            return
        service = self._store.services.transaction_service
        topics: dict[str, PendingTransactionsOfTopic] = {}
        for half in service.checks.pending.values():  # the oldest first
            seen = topics.get(half.topic)
            if seen is None:
                topics[half.topic] = PendingTransactionsOfTopic(
                    count=1, oldest_ms=half.stored_ms, next_check_ms=half.due_ms
                )
            else:
                seen.count += 1
                seen.next_check_ms = min(seen.next_check_ms, half.due_ms)
        request.answer(body=PendingTransactions(total=service.pending_count, topics=topics))

    def get_state(
        self, request: Request[admin_headers.GetTransactionStateRequestHeader], now_ms: int
    ) -> None:
        if not self._store.serving:
            request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, _NOT_SERVING)
            return
        state = self._store.services.transaction_service.state_at(request.header.offset)
        if state is None:
            remark = f"no half message at physical offset {request.header.offset}"
            request.answer(ResponseCode.QUERY_NOT_FOUND, remark)
        else:
            request.answer(ext_fields=state)
