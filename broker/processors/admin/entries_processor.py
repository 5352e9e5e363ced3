"""Entries of the replicated log for readers that are no members (52010): as they lie there, up to the commit that this
member knows of. Each member answers for itself, so a reader may spare the leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.answers import Request
from dledger.entry import Index
from dledger.rpc.requests import GetRequest
from dledger.rpc.response_code import ResponseCode as LogResponseCode
from remoting.codes import ResponseCode
from remoting.headers import admin_headers
from remoting.headers.headers import to_ext_fields

if TYPE_CHECKING:
    from store.message_store import MessageStore

BYTES_MAX: Final = 1024 * 1024  # of one answer, unless its one entry is larger


class EntriesProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def get_entries(self, request: Request[admin_headers.GetEntriesRequestHeader], now_ms: int) -> None:
        replica, header = self._store.replica, request.header
        if not replica.log.head_size:
            remark = "this broker is no member of a group: its log has records and no entries"
            request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            return
        size_max = min(max(header.max_bytes, 0), BYTES_MAX)
        asked = GetRequest(0, Index(max(header.begin_index, 0)), size_max)
        found, buffers = replica.committed_entries(asked, size_max)
        if found.code is LogResponseCode.DISK_ERROR:
            remark = f"entry {header.begin_index} is damaged here: another member may have it"
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
        request.answer(ext_fields=to_ext_fields(told), body=b"".join(buffers))
