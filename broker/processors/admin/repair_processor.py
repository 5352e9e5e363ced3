"""What is damaged on this member's disk and how far its repair is (52002). Each member answers for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.answers import Request
from broker.processors.admin.scrub_processor import scrub_body
from remoting.bodies import admin_bodies
from remoting.headers.headers import CommandHeader

if TYPE_CHECKING:
    from dledger.repair_status import RangeStatus
    from store.message_store import MessageStore


class RepairProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def get_status(self, request: Request[CommandHeader], now_ms: int) -> None:
        repair = self._store.replica.repairer.status()
        body = admin_bodies.RepairStatusResponseBody(
            repaired_ranges=repair.repaired_count,
            repaired_bytes=repair.repaired_size,
            ranges=[_range_body(told) for told in repair.ranges],
            scrub=scrub_body(self._store.replica.scrubber.status()),
        )
        request.answer(body=body)


def _range_body(told: RangeStatus) -> admin_bodies.DamagedRangeBody:
    faulty = told.faulty
    return admin_bodies.DamagedRangeBody(
        first_index=faulty.first_index,
        last_index=faulty.last_index,
        first_byte=faulty.pos,
        last_byte=faulty.next_pos - 1,
        files=list(told.files),
        since_ms=told.since_ms,
        stage=told.stage.value,
        peer=told.peer,
        refusals=dict(told.refusals),
        repaired_bytes=told.written_size,
        retry_ms=told.retry_ms,
    )
