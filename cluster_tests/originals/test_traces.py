"""Java's clients write traces to a broker that makes no topic by itself."""

import asyncio

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import JavaClient

from mqclient import Admin
from mqclient.admin_results import MessageTrace
from remoting.bodies.topic_bodies import TopicConfig

pytestmark = [pytest.mark.java, pytest.mark.slow]
CONF = {"autoCreateTopicEnable": "false", "traceTopicEnable": "true"}
COUNT = 5


async def make_topic(cluster: LocalCluster) -> None:
    async with Admin(cluster.namesrv) as admin:
        await admin.topics.put(f"127.0.0.1:{cluster.base_port + 10}", TopicConfig(topic_name="Traced"))


async def traces(cluster: LocalCluster, ids: set[str]) -> list[MessageTrace]:
    async with Admin(cluster.namesrv) as admin:
        return [trace for one in ids for trace in await admin.messages.traces(one)]


def test_traces_of_a_producer_and_a_consumer_are_stored(java: JavaClient, cluster: LocalCluster) -> None:
    cluster.up("--nodes", "1", conf=CONF)
    cluster.leader()
    asyncio.run(make_topic(cluster))
    with java.traced(cluster.namesrv, "Traced", "traced_group", COUNT, "k") as traced:

        def received() -> set[str]:
            return {e["id"] for e in traced.events if e["event"] == "received"}

        wait_for(lambda: len(received()) == COUNT, 60, "all messages")

        def found() -> list[MessageTrace]:
            return asyncio.run(traces(cluster, received()))

        # While the clients run: they send traces by and by, and what one of 4.9 has left at its end may stay unsent.
        wait_for(lambda: len(found()) >= 2 * COUNT, 60, "the traces")
        traced.close_input()
        traced.wait_for("done")
    assert sorted(trace.type for trace in found()) == ["Pub"] * COUNT + ["Sub"] * COUNT
    assert all(trace.success for trace in found())
