"""Requests by which somebody's hand changes a server: who asked for what is a line in that server's log.

Clients at work commit offsets, register and lock queues by the thousand; these here come from tools. Each server's own
table says which they are.
"""

from __future__ import annotations

import logging

from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand

log = logging.getLogger(__name__)

_SECRET_FIELDS = {
    "Signature",
    "SecurityToken",
}  # the token: of temporary keys, which clients of Java may have


def note_operator_request(command: RemotingCommand, remote_address: object) -> None:
    """Before the request is looked at, so it may yet be refused. Bodies may be long or secret: only their size. Whoever
    reads a signature could send the request again.
    """
    shown = {key: value for key, value in command.ext_fields.items() if key not in _SECRET_FIELDS}
    log.info(
        "asked for %s code=%d addr=%s body_size=%d fields=%.400r",
        *(RequestCode(command.code).name, command.code, remote_address, len(command.body)),
        shown,
    )
