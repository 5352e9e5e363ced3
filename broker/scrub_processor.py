"""The scrub by hand (52001): an operator has a round begin, or asks how far it is. Each member answers for itself."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from broker.answers import Answers, RequestHandler
from broker.client_channel import ClientChannel
from remoting import admin_bodies, admin_headers, headers
from remoting.codes import RequestCode
from remoting.command import RemotingCommand

if TYPE_CHECKING:
    from dledger.scrubber import ScrubRound, ScrubStatus
    from store.message_store import MessageStore


class ScrubProcessor:
    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self.handlers: dict[int, RequestHandler] = {RequestCode.SCRUB: self._scrub}

    def _scrub(self, answers: Answers, channel: ClientChannel, command: RemotingCommand, now_ms: int) -> None:
        header = headers.decode(admin_headers.ScrubRequestHeader, command.ext_fields)
        scrubber = self._store.replica.scrubber
        if header.begin:
            scrubber.start_round(now_ms)
        answers.add(command, body=scrub_body(scrubber.status()).encode())


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
