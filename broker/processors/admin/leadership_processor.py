"""Leadership by hand: an operator has the leader hand over, and hears how that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from broker.answers import AnyRequest, Request
from broker.leadership.leader_refusals import PLAIN_BROKER, refuse
from dledger.core.messages import PeerId
from dledger.core.output import Role
from dledger.entry import Term
from remoting.bodies import admin_bodies
from remoting.codes import ResponseCode
from remoting.headers import admin_headers

if TYPE_CHECKING:
    from store.message_store import MessageStore

# A transfer that is given up has ended before; this is for one whose successor nobody hears of.
WAIT_MS_MAX = 3_000


class _Asked(msgspec.Struct, frozen=True):
    request: AnyRequest
    term: Term  # that this member led
    target: PeerId
    until_ms: int


class LeadershipProcessor:
    """Invariant: each request is answered once: at once if it is refused, else when it is known who leads."""

    def __init__(self, store: MessageStore, *, is_group: bool) -> None:
        """`is_group`: not a plain broker."""
        self._store = store
        self._is_group = is_group
        self._asked: list[_Asked] = []

    @property
    def has_work(self) -> bool:
        """Perhaps for the next tick."""
        return bool(self._asked)

    def tick(self, now_ms: int) -> None:
        if self._asked:
            self._asked = [asked for asked in self._asked if not self._answer(asked, now_ms)]

    def transfer_leadership(
        self, request: Request[admin_headers.LeadershipTransferRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        if not self._is_group:
            request.answer(ResponseCode.INVALID_PARAMETER, PLAIN_BROKER)
            return
        store = self._store
        refusal = store.transfer_leadership(header.transferee_id or None, now_ms)
        if refusal is not None:
            refuse(request, refusal)
            return
        target = store.replica.member.transfer_target
        assert target is not None, "it is under way"
        self._asked.append(_Asked(request, store.term, target, now_ms + WAIT_MS_MAX))

    def _answer(self, asked: _Asked, now_ms: int) -> bool:
        """Whether there was something to answer."""
        store, request = self._store, asked.request
        if store.term != asked.term and store.leader_id is not None:
            if store.leader_id == asked.target:
                body = admin_bodies.LeadershipTransferResponseBody(leader_id=store.leader_id, term=store.term)
                request.answer(body=body)
            else:
                remark = f"{asked.target} did not win the vote: {store.leader_id} leads term {store.term}"
                request.answer(ResponseCode.SYSTEM_ERROR, remark)
        elif store.role is Role.LEADER and store.replica.member.transfer_target is None:
            remark = f"{asked.target} did not take leadership over in time: {store.leader_id} leads on"
            request.answer(ResponseCode.SYSTEM_BUSY, remark)
        elif now_ms >= asked.until_ms:
            remark = f"outcome unknown: {asked.target} was told to campaign, and no leader is known since"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
        else:
            return False
        return True
