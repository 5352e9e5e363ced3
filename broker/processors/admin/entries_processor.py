"""Entries of the replicated log for readers that are no members (52010): as they lie there, up to the commit that this
member knows of. Each member answers for itself, so a reader may spare the leader.

An entry's header alone (52012) proves what was read, and tells nothing of what the log holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.answers import Request
from dledger.entry import ENTRY_HEADER_SIZE, Index
from dledger.rpc.requests import GetRequest
from dledger.rpc.response_code import ResponseCode as LogResponseCode
from remoting.codes import ResponseCode
from remoting.headers import admin_headers
from remoting.headers.headers import HeaderT, to_ext_fields

if TYPE_CHECKING:
    from store.message_store import MessageStore

BYTES_MAX: Final = 1024 * 1024  # of one answer, unless its one entry is larger


class EntriesProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def get_entries(self, request: Request[admin_headers.GetEntriesRequestHeader], now_ms: int) -> None:
        size_max = min(max(request.header.max_bytes, 0), BYTES_MAX)
        self._answer(request, request.header.begin_index, size_max)

    def get_head(self, request: Request[admin_headers.GetEntryHeadRequestHeader], now_ms: int) -> None:
        self._answer(request, request.header.index, 0, body_max=ENTRY_HEADER_SIZE)

    def _answer(
        self, request: Request[HeaderT], begin_index: int, size_max: int, body_max: int | None = None
    ) -> None:
        """`body_max`: bytes, all if None."""
        replica = self._store.replica
        if not replica.log.head_size:
            remark = "this broker is no member of a group: its log has records and no entries"
            request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            return
        asked = GetRequest(0, Index(max(begin_index, 0)), size_max)
        found, buffers = replica.committed_entries(asked, size_max)
        if found.code is LogResponseCode.DISK_ERROR:
            remark = f"entry {begin_index} is damaged here: another member may have it"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        told = admin_headers.GetEntriesResponseHeader(
            last_index=found.last_index,
            first_pos=found.first_pos,
            previous_chain=found.previous_chain,
            ledger_begin_index=replica.log.ledger_begin_index,
            committed_index=found.committed_index,
            group_uuid=(replica.group_uuid or b"").hex(),
        )
        request.answer(ext_fields=to_ext_fields(told), body=b"".join(buffers)[:body_max])
