"""What is damaged on this member's disk and how far its repair is (52002). Each member answers for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.answers import Answers, RequestHandler
from broker.client_channel import ClientChannel
from broker.scrub_processor import scrub_body
from remoting import admin_bodies
from remoting.codes import RequestCode
from remoting.command import RemotingCommand

if TYPE_CHECKING:
    from dledger.repair_status import RangeStatus
    from store.message_store import MessageStore


class RepairProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.handlers: dict[int, RequestHandler] = {RequestCode.REPAIR_STATUS: self._status}

    def _status(
        self, answers: Answers, channel: ClientChannel, command: RemotingCommand, now_ms: int
    ) -> None:
        repair = self._store.replica.repairer.status()
        body = admin_bodies.RepairStatusResponseBody(
            repaired_ranges=repair.repaired_count,
            repaired_bytes=repair.repaired_size,
            ranges=[_range_body(told) for told in repair.ranges],
            scrub=scrub_body(self._store.replica.scrubber.status()),
        )
        answers.add(command, body=body.encode())


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
