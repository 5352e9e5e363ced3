"""Requests by which somebody's hand changes a server: who asked for what is a line in that server's log.

Clients at work commit offsets, register and lock queues by the thousand; these here come from tools.
"""

from __future__ import annotations

import logging

from remoting.codes import RequestCode
from remoting.command import RemotingCommand

log = logging.getLogger(__name__)

OPERATOR_CODES = frozenset(
    {
        # Of a broker.
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.UPDATE_BROKER_CONFIG,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.LEADERSHIP_TRANSFER,
        RequestCode.ADD_MEMBER,
        RequestCode.REMOVE_MEMBER,
        # Of a NameServer.
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.UPDATE_NAMESRV_CONFIG,
    }
)


def note_operator_request(command: RemotingCommand, remote_address: object) -> None:
    """Before the request is looked at, so it may yet be refused. Bodies may be long or secret: only their size."""
    if command.code in OPERATOR_CODES:
        log.info(
            "asked for %s code=%d addr=%s body_size=%d fields=%.400r",
            *(RequestCode(command.code).name, command.code, remote_address, len(command.body)),
            command.ext_fields,
        )
