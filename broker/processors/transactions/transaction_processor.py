"""Ends of transactions: END_TRANSACTION (37), and RESUME_CHECK_HALF_MESSAGE (323) for what was given up.

The checks are RocketMQ's, in its order, and so are the requests that get no answer. Beyond those it must be a half that
the offset leads to, and a transaction that has ended stays as it ended (store/services/transaction_service.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.answers import AnyRequest, Request
from message import const
from message.errors import MessageDecodeError
from message.message_id import decode_offset_message_id
from message.sys_flag import TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE
from remoting.codes import ResponseCode
from remoting.headers import admin_headers, headers
from store.services.half_message import HALF_TOPIC_BYTES, HalfMessage, immunity_ms
from store.services.resume_check_service import ResumeStatus
from store.services.transaction_service import EndStatus, OnEnded

if TYPE_CHECKING:
    from store.message_store import MessageStore

_NOT_FOUND: Final = "Find prepared transaction message failed"
_UNANSWERED: Final = "outcome unknown: this member stopped leading; a check will ask how the transaction ends"
_ENDS: Final = {
    EndStatus.ENDED: (ResponseCode.SUCCESS, None),
    EndStatus.NOT_SERVING: (ResponseCode.SLAVE_NOT_AVAILABLE, None),
    EndStatus.BUSY: (ResponseCode.SYSTEM_BUSY, "too many ends of transactions wait for the log: end it again later"),
    EndStatus.ILLEGAL: (
        ResponseCode.MESSAGE_ILLEGAL,
        "the message is larger than this broker stores: the transaction stays undecided",
    ),
    EndStatus.UNKNOWN: (ResponseCode.SYSTEM_ERROR, _UNANSWERED),
}  # fmt: skip

# What follows the id of the message; None: SUCCESS. RocketMQ knows 0 and 1.
_RESUMES: Final = {
    ResumeStatus.RESUMED: None,
    ResumeStatus.RESUMED_BEFORE: " was resumed before: its producers are asked, or have ended it",
    ResumeStatus.NOT_GIVEN_UP: " is not the offset id of a message that was given up as undecided",
    ResumeStatus.TOPIC_DELETED: " goes to no topic: the one that it was sent to was deleted since it was given up",
    ResumeStatus.BUSY: ": the broker is busy with another one, or with sends: ask again",
    ResumeStatus.UNKNOWN: ": outcome unknown, this member stopped leading. Ask the next leader again",
}  # fmt: skip


class TransactionProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def end_transaction(self, request: Request[headers.EndTransactionRequestHeader], now_ms: int) -> None:
        header = request.header
        if not self._store.serving:
            request.answer(ResponseCode.SLAVE_NOT_AVAILABLE)
            return
        if header.commit_or_rollback not in (TRANSACTION_COMMIT_TYPE, TRANSACTION_ROLLBACK_TYPE):
            return  # the producer does not know: RocketMQ answers nothing, and its clients ask for nothing
        half = self._store.services.transaction_service.half_at(header.commit_log_offset)
        if half is None:
            request.answer(ResponseCode.SYSTEM_ERROR, _NOT_FOUND)
        elif refusal := request.refusal_of_topic(half.real_topic):
            request.answer(ResponseCode.NO_PERMISSION, refusal)
        elif not header.from_transaction_check and self._is_left_to_the_check(half, now_ms):
            request.answer(ResponseCode.ILLEGAL_OPERATION)
        elif half.group != header.producer_group:
            request.answer(ResponseCode.SYSTEM_ERROR, "The producer group wrong")
        elif half.queue_offset != header.tran_state_table_offset:
            request.answer(ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong")
        elif header.commit_or_rollback == TRANSACTION_COMMIT_TYPE:
            self._store.services.transaction_service.commit(half, _answer(request))
        else:
            self._store.services.transaction_service.roll_back(half, _answer(request))

    def _is_left_to_the_check(self, half: HalfMessage, now_ms: int) -> bool:
        """Whether the time is over that the message's own immunity gives its producer."""
        if const.CHECK_IMMUNITY_TIME_IN_SECONDS not in half.message.properties:
            return False
        timeout_ms = self._store.config.transaction_timeout_ms
        return now_ms - half.message.born_timestamp > max(immunity_ms(half, timeout_ms), timeout_ms)

    def resume_check(
        self, request: Request[admin_headers.ResumeCheckHalfMessageRequestHeader], now_ms: int
    ) -> None:
        if not self._store.serving:
            remark = "this member does not serve as leader now: ask the leader"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        message_id = request.header.msg_id or ""
        services = self._store.services
        coming = self._store.gather.count_of(HALF_TOPIC_BYTES)
        refusal = services.transaction_service.refusal_of_prepared(coming)
        refusal = refusal or services.resume_check_service.refusal
        if refusal is not None:
            request.answer(ResponseCode.SYSTEM_ERROR, refusal)
            return

        def on_resumed(status: ResumeStatus) -> None:
            remark = _RESUMES[status]
            code = ResponseCode.SUCCESS if remark is None else ResponseCode.SYSTEM_ERROR
            request.answer(code, remark and f"{message_id!r}{remark}")

        try:
            _, phy_offset = decode_offset_message_id(message_id)
            record = self._store.reads.look_message_by_offset(phy_offset)
            if record is None:
                on_resumed(ResumeStatus.NOT_GIVEN_UP)
            else:
                services.resume_check_service.resume(record, on_resumed, now_ms)
        except MessageDecodeError:
            on_resumed(ResumeStatus.NOT_GIVEN_UP)


def _answer(request: AnyRequest) -> OnEnded:
    return lambda status: request.answer(*_ENDS[status])
