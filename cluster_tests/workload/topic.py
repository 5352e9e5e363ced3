"""The topic of a fault run, made before its clients start: else they would find out one by one that there is none."""

import asyncio

from workload.client_process import QUEUES, TOPIC

from mqclient.client_api import ClientApi
from mqclient.errors import MQClientError
from mqclient.topic_route import MASTER_ID
from remoting.client import RemotingClient

PAUSE_S = 0.1


def make_topic(namesrv: str, seconds: float) -> None:
    """Returns when the NameServer tells of it. Raises TimeoutError."""
    asyncio.run(_make_topic(namesrv, seconds))


async def _make_topic(namesrv: str, seconds: float) -> None:
    remoting = RemotingClient(on_request=None)
    api = ClientApi(remoting)
    try:
        async with asyncio.timeout(seconds):
            while not await _is_made(api, namesrv):  # noqa: ASYNC110, another process decides
                await asyncio.sleep(PAUSE_S)
    finally:
        await remoting.close()


async def _is_made(api: ClientApi, namesrv: str) -> bool:
    try:
        route = await api.topic_route(namesrv, TOPIC)
        if route is not None and route.publish_queues:
            return True
        brokers = (await api.cluster_info(namesrv)).broker_addr_table.values()
        masters = [broker.broker_addrs[MASTER_ID] for broker in brokers if MASTER_ID in broker.broker_addrs]
        for master in masters:
            await api.create_topic(master, TOPIC, read_queues=QUEUES, write_queues=QUEUES)
    except MQClientError:
        pass  # no leader yet
    return False
