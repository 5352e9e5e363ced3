"""Waits until clients can send to a cluster.

A module of its own because what asks takes longer to load than what starts a cluster: the processes start meanwhile.
The client library with its event loop would take twice that time.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Final

from mq.cluster import Cluster, ClusterError
from remoting.blocking_connection import BlockingConnection
from remoting.bodies.bodies import MASTER_ID, ClusterInfo
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError

if TYPE_CHECKING:
    import ssl

POLL_INTERVAL_S: Final = 0.01
_TIMEOUT_S: Final = 3.0


def wait_serving(cluster: Cluster, timeout_s: float) -> None:
    """Returns when every group has a leader that the NameServer names, which is when clients can send.

    Asked there and not over HTTP: the first HTTP request makes a broker load its HTTP server, half of its memory.
    Raises ClusterError at the deadline.
    """
    layout = cluster.layout
    tls = _tls_of(layout.client_tls_file) if layout.client_tls_file is not None else None
    groups = {node.group for node in layout.nodes}
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        # The NameServer may not have started yet.
        with (
            contextlib.suppress(RemotingError),
            contextlib.closing(BlockingConnection(layout.namesrv, _until(deadline), tls)) as namesrv,
        ):
            while time.monotonic() < deadline:
                if groups <= _masters(namesrv, _until(deadline)):
                    return
                time.sleep(POLL_INTERVAL_S)
        time.sleep(POLL_INTERVAL_S)
    logs = ", ".join(str(node.log_file) for node in layout.nodes)
    raise ClusterError(f"not every group serves after {timeout_s:.0f} s; see {logs}")


def _tls_of(file: str) -> ssl.SSLContext | None:
    from remoting.tls_settings import client_tls_from_file  # most clusters are in plaintext

    tls = client_tls_from_file(file)
    return tls.context if tls is not None else None


def _until(deadline: float) -> float:
    return min(_TIMEOUT_S, max(deadline - time.monotonic(), POLL_INTERVAL_S))


def _masters(namesrv: BlockingConnection, timeout_s: float) -> set[str]:
    """Names of the groups that have one. Raises RemotingError."""
    answer = namesrv.call(RequestCode.GET_BROKER_CLUSTER_INFO, {}, timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        return set()
    brokers = ClusterInfo.decode(answer.body).broker_addr_table
    return {name for name, broker in brokers.items() if MASTER_ID in broker.broker_addrs}
