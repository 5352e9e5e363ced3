"""Notes changes of users, policies, topics, groups, offsets and members in the log before they are carried out.

`mq admin audit` shows the notes. What access control refuses has none. What its handler refuses later, such as a user
that is there already, has one: it was asked for by somebody who may.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from broker.answers import AnyRequest, answer_applied
from remoting.bodies.bodies import RemotingBody, to_json_value
from remoting.headers.headers import CommandHeader, to_ext_fields
from store.state.state_proposals import ProposeStatus
from store.state.tables.audit_table import NoteRequest

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

WHAT_SIZE_MAX: Final = 3072  # bytes; with more, an answer with all notes might be too large for a frame
_VALUE_LENGTH_MAX: Final = 140  # characters: `Topic:` and the longest name of a topic
_LEFT_OUT: Final = "…"
_PASSWORD: Final = "password"  # the only secret of a body


class AuditNotes:
    """Invariant: what the leader is asked for is carried out or refused once, and not before its note is applied.
    While a member may not know the table, the log file has a warning instead: an upgrade must not stop operators.

    A member that is not the leader writes nothing: it passes the request on.
    """

    def __init__(self, store: MessageStore, clock: Callable[[], int]) -> None:
        self._store = store
        self._clock = clock

    def note(
        self,
        request: AnyRequest,
        body: RemotingBody | None,
        handle: Callable[[int], None],
        now_ms: int,
    ) -> None:
        """Calls `handle(now_ms)` behind the note, or answers that nothing was done."""
        if not self._store.serving:
            handle(now_ms)
            return

        sender = request.sender
        username = "" if sender.user is None else sender.user.username
        noted = NoteRequest(username, sender.source_ip, request.code, _what(request.header, body))

        def on_done(status: ProposeStatus) -> None:
            if status is ProposeStatus.MEMBER_OUTDATED:
                log.warning(
                    "not in the audit: code=%d user=%r addr=%s what=%s",
                    *(noted.code, noted.username, noted.source_ip, noted.what),
                )
            if status in (ProposeStatus.APPLIED, ProposeStatus.MEMBER_OUTDATED):
                handle(self._clock())
            else:
                answer_applied(request)(ProposeStatus.NOT_LEADER)  # its own outcome does not matter

        self._store.propose(noted, on_done, now_ms)


def _what(header: CommandHeader, body: RemotingBody | None) -> str:
    """What the handler is told. Each value has a limit of its own, so that none hides another one."""
    shown = [f"{name}={_cut(value)}" for name, value in to_ext_fields(header).items()]
    if body is not None:
        shown.append(json.dumps(_shortened(body), ensure_ascii=False))
    text = " ".join(shown)
    # A terminal would obey escape sequences. A lone surrogate, which JSON can name, has no UTF-8.
    told = "".join(char if char.isprintable() else "?" for char in text).encode()
    if len(told) <= WHAT_SIZE_MAX:
        return told.decode()
    return told[:WHAT_SIZE_MAX].decode(errors="ignore") + _LEFT_OUT


def _shortened(value: object) -> object:
    """A bean has all its fields, in the order of its class, in which names come first."""
    if isinstance(value, msgspec.Struct):
        return {
            field.encode_name: _shortened(member)
            for field in msgspec.structs.fields(value)
            if field.encode_name != _PASSWORD and (member := getattr(value, field.name)) is not None
        }
    if isinstance(value, list) and any(isinstance(item, msgspec.Struct) for item in value):
        return [_shortened(item) for item in value]
    text = value if isinstance(value, str) else json.dumps(to_json_value(value), ensure_ascii=False)
    return value if len(text) <= _VALUE_LENGTH_MAX else _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_LENGTH_MAX else text[:_VALUE_LENGTH_MAX] + _LEFT_OUT
