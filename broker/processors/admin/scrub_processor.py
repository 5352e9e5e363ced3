"""The scrub by hand (52001): an operator has a round begin, or asks how far it is. Each member answers for itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import asdict

from broker.answers import Request
from remoting.bodies import admin_bodies
from remoting.headers import admin_headers

if TYPE_CHECKING:
    from dledger.scrubber import ScrubRound, ScrubStatus
    from store.message_store import MessageStore


class ScrubProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def scrub(self, request: Request[admin_headers.ScrubRequestHeader], now_ms: int) -> None:
        header = request.header
        scrubber = self._store.replica.scrubber
        if header.begin:
            scrubber.start_round(now_ms)
        request.answer(body=scrub_body(scrubber.status()))


def scrub_body(status: ScrubStatus) -> admin_bodies.ScrubResponseBody:
    return admin_bodies.ScrubResponseBody(
        bytes_per_second=status.bytes_per_second,
        pause_ms=status.pause_ms,
        size=status.size,
        rounds=status.rounds,
        bytes_read=status.bytes_read,
        faults=status.faults,
        mended=status.mended,
        round=_round_body(status.round),
        last_round=_round_body(status.last_round),
    )


def _round_body(told: ScrubRound | None) -> admin_bodies.ScrubRoundBody | None:
    return admin_bodies.ScrubRoundBody(**asdict(told)) if told is not None else None
