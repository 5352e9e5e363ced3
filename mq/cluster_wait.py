"""Waits until clients can send to a cluster.

A module of its own because the client library takes longer to load than all else that starts a cluster needs: the
processes start meanwhile.
"""

from __future__ import annotations

import asyncio

from mq.cluster import Cluster, ClusterError
from mq.cluster_layout import ClusterLayout
from mqclient.client_api import ClientApi
from mqclient.connecting import tls_from_file
from mqclient.errors import MQClientError
from mqclient.route.topic_route import MASTER_ID
from remoting.client import RemotingClient
from remoting.errors import RemotingError

POLL_INTERVAL_S = 0.01


def wait_serving(cluster: Cluster, timeout_s: float) -> None:
    """Returns when every group has a leader that the NameServer names, which is when clients can send.

    Asked there and not over HTTP: the first HTTP request makes a broker load its HTTP server, half of its memory.
    Raises ClusterError at the deadline.
    """
    groups = {node.group for node in cluster.layout.nodes}
    try:
        asyncio.run(_wait_masters(cluster.layout, groups, timeout_s))
    except TimeoutError:
        logs = ", ".join(str(node.log_file) for node in cluster.layout.nodes)
        raise ClusterError(f"not every group serves after {timeout_s:.0f} s; see {logs}") from None


async def _wait_masters(layout: ClusterLayout, groups: set[str], timeout_s: float) -> None:
    connect = tls_from_file(layout.client_tls_file) if layout.client_tls_file is not None else None
    remoting = RemotingClient(connect=connect)
    api = ClientApi(remoting)
    try:
        async with asyncio.timeout(timeout_s):
            while not groups <= await _masters(api, layout.namesrv):  # noqa: ASYNC110, another process decides
                await asyncio.sleep(POLL_INTERVAL_S)
    finally:
        await remoting.close()


async def _masters(api: ClientApi, namesrv: str) -> set[str]:
    try:
        brokers = (await api.cluster_info(namesrv)).broker_addr_table
    except (RemotingError, MQClientError):
        return set()
    return {name for name, broker in brokers.items() if MASTER_ID in broker.broker_addrs}
