"""The super users of the conf, on their way into the table of users.

They count at each member while the table has no super user that is enabled, so a group without a leader knows somebody.
A leader writes them down; from then on the table alone counts, and a secret that is changed there is changed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from auth.user import User
from broker.answers import propose_each
from store.state.state_proposals import ProposeStatus
from store.state.tables.access_table import PutUser

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.message_store import MessageStore

log = logging.getLogger(__name__)

AGAIN_MS: Final = 5_000  # a member may not know the table yet


class ConfUsers:
    def __init__(self, users: Sequence[User], store: MessageStore) -> None:
        self._users = users
        self._store = store
        self._table = store.tables.access_table
        self._next_ms = 0

    def tick(self, now_ms: int) -> None:
        if not self._users or not self._store.serving or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + AGAIN_MS
        if self._table.has_super_user:
            return
        changes = [
            PutUser(user.username, user.password, user.user_type, user.user_status) for user in self._users
        ]
        propose_each(self._store, changes, self._done, now_ms)

    def _done(self, statuses: Sequence[ProposeStatus]) -> None:
        if set(statuses) == {ProposeStatus.APPLIED}:
            log.info(
                "super users of the conf are in the table: %s", ", ".join(u.username for u in self._users)
            )
