"""Single messages: by their physical offset (33), by a key or their unique key (12). Every member answers of itself."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

import msgspec

from broker.answers import Request, answer_error
from disk.disk import DiskError
from message.decoder import decode_message
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.headers import headers
from store.errors import StoreError
from store.message_query import MessageQuery

if TYPE_CHECKING:
    from store.message_store import MessageStore

NOT_FOUND_REMARK: Final = "can not find message, maybe time range not correct"
# RocketMQ's defaultQueryMaxNum and maxMsgsNumBatch.
UNIQUE_KEY_COUNT_MAX: Final = 32
COUNT_MAX: Final = 64
TAG_INDEX_TYPE: Final = "T"
# For the index to cover what was visible when the query came; clients wait for 5 to 15 s.
WAIT_MS_MAX: Final = 2000
# Each may hold 4 MB of what it found.
PENDING_MAX: Final = 64
# A step may take some milliseconds, and there are 10 between two ticks.
STEPS_PER_TICK: Final = 4


class _Pending(msgspec.Struct):
    request: Request[headers.QueryMessageRequestHeader]
    query: MessageQuery
    until_ms: int

    def is_waiting(self, now_ms: int) -> bool:
        return self.query.is_waiting and now_ms < self.until_ms


class QueryMessageProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._pending: deque[_Pending] = deque()

    @property
    def has_work(self) -> bool:
        """For the next tick."""
        return bool(self._pending)

    def tick(self, now_ms: int) -> None:
        """Every 10 ms or so: one step of a few queries in turn, so that long ones hold up neither the others nor the
        member.
        """
        steps = 0
        for _ in range(len(self._pending)):
            if steps == STEPS_PER_TICK:
                return
            pending = self._pending.popleft()
            if not pending.request.channel.is_open:
                continue
            if pending.is_waiting(now_ms):
                self._pending.append(pending)
                continue
            steps += 1
            if not self._is_answered(pending):
                self._pending.append(pending)

    def view_message(self, request: Request[headers.ViewMessageRequestHeader], now_ms: int) -> None:
        header = request.header
        record = self._store.reads.look_message_by_offset(header.offset)
        if record is None:
            remark = f"can not find message by the offset, {header.offset}"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
        elif refusal := request.refusal_of_topic(decode_message(record).topic):
            request.answer(ResponseCode.NO_PERMISSION, refusal)
        else:
            request.answer(body=record)

    def query_message(self, request: Request[headers.QueryMessageRequestHeader], now_ms: int) -> None:
        header = request.header
        if header.index_type == TAG_INDEX_TYPE:
            remark = (
                "messages are found by key or unique key, not by tag: consume the topic with that tag instead"
            )
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        count_max = header.max_num
        if header.is_unique_key_query:
            count_max = UNIQUE_KEY_COUNT_MAX
        query = self._store.reads.query_message(
            header.topic,
            header.key,
            max(min(count_max, COUNT_MAX), 0),
            header.begin_timestamp,
            header.end_timestamp,
        )
        pending = _Pending(request, query, now_ms + WAIT_MS_MAX)
        if len(self._pending) >= PENDING_MAX:
            remark = f"{len(self._pending)} queries by key are under way, {PENDING_MAX} are allowed: ask again later"
            request.answer(ResponseCode.SYSTEM_BUSY, remark)
        elif pending.is_waiting(now_ms) or not self._is_answered(pending):
            self._pending.append(pending)

    def _is_answered(self, pending: _Pending) -> bool:
        query = pending.query
        try:
            query.look()
        except (RemotingError, StoreError, DiskError) as error:
            answer_error(pending.request, error)
            return True
        if query.is_done:
            self._answer(pending)
        return query.is_done

    def _answer(self, pending: _Pending) -> None:
        index = self._store.index
        fields = {
            "indexLastUpdateTimestamp": str(index.end_timestamp),
            "indexLastUpdatePhyoffset": str(index.end_phy_offset),
        }
        records = pending.query.records
        if records:
            pending.request.answer(ext_fields=fields, body=b"".join(records))
            return
        remark = NOT_FOUND_REMARK
        if pending.query.is_incomplete:
            remark = f"not found so far: the IndexFiles are {index.behind} entries behind the log, ask again"
        pending.request.answer(ResponseCode.QUERY_NOT_FOUND, remark, fields)
