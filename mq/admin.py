"""`mq admin …`: what RocketMQ's mqadmin tells of a cluster, under mqadmin's names, as far as it is needed here.

mqadmin itself works with these brokers, too; this is the part of it that needs no JVM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, TypeVar

import typer

from mq.console import print_json, print_table, user_errors
from mqclient import MessageQueue, MQClientError, NoAnswerError, RouteNotFoundError
from mqclient.client_api import ClientApi
from mqclient.client_instance import parse_namesrv
from mqclient.topic_route import MASTER_ID, TopicRoute
from remoting.bodies import ClusterInfo
from remoting.client import RemotingClient

app = typer.Typer(no_args_is_help=True, help="Look at a cluster and change its topics (names are mqadmin's).")

NamesrvOption = Annotated[
    str, typer.Option("-n", "--namesrv", metavar="ADDR", help="host:port, several with ;")
]
TopicOption = Annotated[str, typer.Option("-t", "--topic")]
GroupOption = Annotated[str, typer.Option("-g", "--group", help="Consumer group.")]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON and nothing else.")]
Row = dict[str, Any]
T = TypeVar("T")


@app.command("clusterList")
def cluster_list(namesrv: NamesrvOption, as_json: JsonOption = False) -> None:
    """Brokers by cluster and group; id 0 leads."""

    async def ask(api: ClientApi, address: str) -> list[Row]:
        info = await api.cluster_info(address)
        return [
            {"cluster": broker.cluster, "broker": name, "id": broker_id, "address": broker_address}
            for name, broker in sorted(info.broker_addr_table.items())
            for broker_id, broker_address in sorted(broker.broker_addrs.items())
        ]

    _show(_run(namesrv, ask), ("cluster", "broker", "id", "address"), as_json=as_json)


@app.command("topicList")
def topic_list(namesrv: NamesrvOption, as_json: JsonOption = False) -> None:
    """Every topic that a broker has registered."""

    async def ask(api: ClientApi, address: str) -> list[Row]:
        return [{"topic": topic} for topic in await api.topic_list(address)]

    _show(_run(namesrv, ask), ("topic",), as_json=as_json)


@app.command("topicRoute")
def topic_route(namesrv: NamesrvOption, topic: TopicOption, as_json: JsonOption = False) -> None:
    """Which brokers have a topic, and how many of its queues."""

    async def ask(api: ClientApi, address: str) -> list[Row]:
        route = await _route(api, address, topic)
        return [
            {
                "broker": name,
                "leader": route.master_address(name),
                "followers": ", ".join(a for i, a in sorted(addresses.items()) if i != MASTER_ID) or None,
                "read_queues": sum(queue.broker_name == name for queue in route.subscribe_queues),
                "write_queues": sum(queue.broker_name == name for queue in route.publish_queues),
            }
            for name, addresses in sorted(route.brokers.items())
        ]

    columns = ("broker", "leader", "followers", "read_queues", "write_queues")
    _show(_run(namesrv, ask), columns, as_json=as_json)


@app.command("updateTopic")
def update_topic(
    namesrv: NamesrvOption,
    topic: TopicOption,
    broker: Annotated[
        str, typer.Option("-b", "--broker", help="A broker's address; without it all groups.")
    ] = "",
    cluster: Annotated[str, typer.Option("-c", "--cluster", help="All groups of this cluster.")] = "",
    read_queues: Annotated[int, typer.Option("-r", "--readQueueNums")] = 8,
    write_queues: Annotated[int, typer.Option("-w", "--writeQueueNums")] = 8,
    perm: Annotated[int, typer.Option("-p", "--perm", help="2 write, 4 read, 6 both.")] = 6,
) -> None:
    """Make a topic, or change its queues."""

    async def ask(api: ClientApi, address: str) -> list[str]:
        leaders = [broker] if broker else _leaders(await api.cluster_info(address), cluster)
        for leader in leaders:
            await api.create_topic(
                leader, topic, read_queues=read_queues, write_queues=write_queues, perm=perm
            )
        return leaders

    for leader in _run(namesrv, ask):
        print(f"{topic} on {leader}: {read_queues} read queues, {write_queues} write queues, perm {perm}")


@app.command("topicStatus")
def topic_status(namesrv: NamesrvOption, topic: TopicOption, as_json: JsonOption = False) -> None:
    """First and next offset of each queue."""

    async def ask(api: ClientApi, address: str) -> list[Row]:
        route = await _route(api, address, topic)
        rows = []
        for queue in route.subscribe_queues:
            leader = _leader(route, queue)
            first, end = await api.min_offset(leader, queue), await api.max_offset(leader, queue)
            rows.append({"broker": queue.broker_name, "queue": queue.queue_id, "min": first, "max": end})
        return rows

    _show(_run(namesrv, ask), ("broker", "queue", "min", "max"), as_json=as_json)


@app.command("consumerProgress")
def consumer_progress(
    namesrv: NamesrvOption, group: GroupOption, topic: TopicOption, as_json: JsonOption = False
) -> None:
    """How far a group has read a topic, queue by queue."""

    async def ask(api: ClientApi, address: str) -> list[Row]:
        route = await _route(api, address, topic)
        rows = []
        for queue in route.subscribe_queues:
            leader = _leader(route, queue)
            end = await api.max_offset(leader, queue)
            offset = await api.query_consumer_offset(leader, group, queue)
            lag = None if offset is None else end - offset
            rows.append(
                {
                    "broker": queue.broker_name,
                    "queue": queue.queue_id,
                    "broker_offset": end,
                    "consumer_offset": offset,
                    "diff": lag,
                }
            )
        return rows

    columns = ("broker", "queue", "broker_offset", "consumer_offset", "diff")
    _show(_run(namesrv, ask), columns, as_json=as_json)


def _run(namesrv: str, ask: Callable[[ClientApi, str], Awaitable[T]]) -> T:
    """Asks each NameServer in turn until one answers."""

    async def in_turn() -> T:
        remoting = RemotingClient()
        trouble: Exception | None = None
        try:
            for address in parse_namesrv(namesrv):
                try:
                    return await ask(ClientApi(remoting), address)
                except NoAnswerError as error:
                    if not error.definite:
                        raise
                    trouble = error
        finally:
            await remoting.close()
        raise MQClientError(f"no NameServer answered: {trouble}")

    with user_errors():
        return asyncio.run(in_turn())


async def _route(api: ClientApi, namesrv: str, topic: str) -> TopicRoute:
    route = await api.topic_route(namesrv, topic)
    if route is None:
        raise RouteNotFoundError(f"no broker has registered topic {topic} at {namesrv}")
    return route


def _leader(route: TopicRoute, queue: MessageQueue) -> str:
    address = route.master_address(queue.broker_name)
    if address is None:
        raise MQClientError(f"group {queue.broker_name} has no leader now: try again in a moment")
    return address


def _leaders(info: ClusterInfo, cluster: str) -> list[str]:
    names = info.cluster_addr_table.get(cluster, []) if cluster else list(info.broker_addr_table)
    leaders = [
        address
        for name in sorted(names)
        if (address := info.broker_addr_table[name].broker_addrs.get(MASTER_ID)) is not None
    ]
    if not leaders:
        raise MQClientError(
            f"no group of {f'cluster {cluster}' if cluster else 'any cluster'} has a leader now"
        )
    return leaders


def _show(rows: Sequence[Row], columns: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json(list(rows))
    else:
        print_table("", columns, [[row[column] for column in columns] for row in rows])
