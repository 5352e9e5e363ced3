"""A topic, made before its clients start: else they would find out one by one that there is none."""

import asyncio

from local_cluster import wait_for
from workload.client_process import QUEUES, TOPIC

from auth.client_credentials import signer_of
from mqclient.client_api import ClientApi
from mqclient.errors import MQClientError
from remoting.bodies.bodies import MASTER_ID
from remoting.client import RemotingClient


def make_topic(namesrv: str, seconds: float, topic: str = TOPIC) -> None:
    """Returns when the NameServer tells of it. AssertionError."""
    wait_for(lambda: asyncio.run(_is_made(namesrv, topic)), seconds, f"the topic {topic} at {namesrv}")


async def _is_made(namesrv: str, topic: str) -> bool:
    """Has it made where it is not yet."""
    remoting = RemotingClient(
        on_request=None, before_request=signer_of(None)
    )  # keys of the environment, if any
    api = ClientApi(remoting)
    try:
        route = await api.topic_route(namesrv, topic)
        if route is not None and route.publish_queues:
            return True
        brokers = (await api.cluster_info(namesrv)).broker_addr_table.values()
        masters = [broker.broker_addrs[MASTER_ID] for broker in brokers if MASTER_ID in broker.broker_addrs]
        for master in masters:
            await api.create_topic(master, topic, read_queues=QUEUES, write_queues=QUEUES)
    except MQClientError:
        pass  # no leader yet
    finally:
        await remoting.close()
    return False
