"""Notes changes of users, policies, topics, groups, offsets and members in the log before they are carried out.

`mq admin audit` shows the notes. What access control refuses has none. What its handler refuses later, such as a user
that is there already, has one: it was asked for by somebody who may.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from auth.signature import ACCESS_KEY, SIGNATURE
from broker.access.passed_on import PASSED_ON_FIELDS
from broker.answers import AnyRequest, answer_applied
from remoting.bodies.bodies import RemotingBody, to_json_value
from store.state.state_proposals import ProposeStatus
from store.state.tables.audit_table import NoteRequest

if TYPE_CHECKING:
    from store.message_store import MessageStore

WHAT_LENGTH_MAX: Final = 400  # characters
_PASSWORD: Final = "password"  # the only secret of a body
_LEFT_OUT: Final = {ACCESS_KEY, SIGNATURE, *PASSED_ON_FIELDS}


class AuditNotes:
    """Invariant: what the leader is asked for is carried out or refused once, and not before its note is applied.

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

        def on_done(status: ProposeStatus) -> None:
            # While a member does not know the table, changes go on without notes: an upgrade must not stop operators.
            if status in (ProposeStatus.APPLIED, ProposeStatus.MEMBER_OUTDATED):
                handle(self._clock())
            else:
                answer_applied(request)(ProposeStatus.NOT_LEADER)  # its own outcome does not matter

        sender = request.sender
        username = "" if sender.user is None else sender.user.username
        what = _what(request.ext_fields, body)
        self._store.propose(NoteRequest(username, sender.source_ip, request.code, what), on_done, now_ms)


def _what(fields: Mapping[str, str], body: RemotingBody | None) -> str:
    shown = [f"{key}={value}" for key, value in sorted(fields.items()) if key not in _LEFT_OUT]
    if body is not None:
        told = to_json_value(body)
        assert isinstance(told, dict), "a body is an object"
        shown.append(
            json.dumps({key: value for key, value in told.items() if key != _PASSWORD}, ensure_ascii=False)
        )
    # A lone surrogate, which JSON can name, has no UTF-8.
    return " ".join(shown)[:WHAT_LENGTH_MAX].encode(errors="replace").decode()
