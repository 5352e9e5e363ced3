"""Commands about topics."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from mq.admin.bean_files import read_beans
from mq.admin.command import Done, Result, command
from mq.admin.options import Bool, BrokerOption, LeadersOption, Option, PermOption, TopicOption
from mq.admin.targets import broker_name_of, done_at_each, leaders_of
from mqclient import Admin
from mqclient.admin.namesrv_admin import ORDER_TOPIC_CONFIG
from mqclient.consumer.allocate import AVG
from remoting.bodies.topic_bodies import TopicConfig


@command
async def topic_list(
    admin: Admin,
    cluster_model: Annotated[
        bool, Option("-c", "--clusterModel", help="With cluster and consumer groups.")
    ] = False,
) -> Result:
    """Every topic that a broker has registered."""
    if cluster_model:
        return await admin.topics.names_with_groups()
    return [{"topic": topic} for topic in await admin.topics.names()]


@command
async def topic_route(admin: Admin, topic: TopicOption) -> Result:
    """Which brokers have a topic, and how many of its queues."""
    return await admin.topics.route(topic)


@command
async def topic_status(admin: Admin, topic: TopicOption) -> Result:
    """First and next offset of each queue, and when the last message came."""
    return await admin.topics.status(topic)


@command
async def topic_cluster_list(admin: Admin, topic: TopicOption) -> Result:
    """Clusters that have a topic."""
    return [{"cluster": cluster} for cluster in await admin.topics.clusters(topic)]


@command
async def allocate_mq(
    admin: Admin,
    topic: TopicOption,
    ips: Annotated[str, Option("-i", "--ipList", help="Client ids, separated by commas.")],
) -> Result:
    """Which queues each of some clients would read, by the default strategy."""
    clients = list(filter(None, (client.strip() for client in ips.split(","))))
    if not clients:
        raise ValueError("-i: name one client at least")
    queues = await admin.messages.queues(topic)
    return [
        {"client": client, "broker": queue.broker_name, "queue": queue.queue_id}
        for client in clients
        for queue in AVG.allocate(client, queues, clients)
    ]


@command
async def stats_all(
    admin: Admin,
    active: Annotated[bool, Option("-a", "--activeTopic", help="Only what moved today.")] = False,
    topic: Annotated[str, Option("-t", "--topic", help="This topic alone.")] = "",
) -> Result:
    """Rates and counts of topics and the groups that read them."""
    return await admin.topics.all_stats(only=topic, active=active)


@command
async def update_topic(
    admin: Admin,
    topic: TopicOption,
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
    read_queues: Annotated[int, Option("-r", "--readQueueNums")] = 8,
    write_queues: Annotated[int, Option("-w", "--writeQueueNums")] = 8,
    perm: PermOption = 6,
    order: Annotated[Bool, Option("-o", "--order", help="Read in order.")] = Bool.FALSE,
    unit: Annotated[Bool, Option("-u", "--unit")] = Bool.FALSE,
    has_unit_sub: Annotated[Bool, Option("-s", "--hasUnitSub")] = Bool.FALSE,
    attributes: Annotated[str, Option("-a", "--attributes", help="+key=value,-key")] = "",
) -> Result:
    """Make a topic or change it, at one broker, a cluster, or everywhere."""
    config = TopicConfig(
        topic_name=topic,
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        topic_sys_flag=(1 if unit else 0) | (2 if has_unit_sub else 0),
        order=bool(order),
    )
    leaders = await leaders_of(admin, broker, cluster)
    done = await done_at_each(
        leaders,
        lambda leader: admin.topics.put(leader, config, attributes),
        f"topic {topic}: {read_queues} read queues, {write_queues} write queues, perm {perm}",
    )
    if order:
        conf = [f"{await broker_name_of(admin, leader)}:{write_queues}" for leader in leaders]
        if broker:
            conf = _with_order_conf(await admin.namesrv.kv(ORDER_TOPIC_CONFIG, topic), conf[0])
        told = await admin.namesrv.put_kv(ORDER_TOPIC_CONFIG, topic, ";".join(conf))
        done += [Done(namesrv, f"order of topic {topic}: {';'.join(conf)}") for namesrv in told]
    return done


def _with_order_conf(known: str | None, added: str) -> list[str]:
    """The queues of the other brokers stay as they are."""
    by_broker = {item.partition(":")[0]: item for item in (known or "").split(";") if item}
    return list({**by_broker, added.partition(":")[0]: added}.values())


@command
async def update_topic_list(
    admin: Admin,
    file: Annotated[Path, Option("-f", "--filename", help="JSON, a list of topic configs.")],
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Make or change all topics of a file, or none of them."""
    configs = read_beans(file, TopicConfig)
    return await done_at_each(
        await leaders_of(admin, broker, cluster),
        lambda leader: admin.topics.put_all(leader, configs),
        *(f"topic {config.topic_name}" for config in configs),
    )


@command
async def update_topic_perm(
    admin: Admin, topic: TopicOption, perm: PermOption, broker: BrokerOption = "", cluster: LeadersOption = ""
) -> Result:
    """Say whether a topic may be written and read."""
    return await done_at_each(
        await leaders_of(admin, broker, cluster),
        lambda leader: admin.topics.set_perm(leader, topic, perm),
        f"topic {topic}: perm {perm}",
    )


@command
async def update_order_conf(
    admin: Admin,
    topic: TopicOption,
    method: Annotated[str, Option("-m", "--method", metavar="put|get|delete")],
    conf: Annotated[str, Option("-v", "--orderConf", help="broker:queues, several with ;")] = "",
) -> Result:
    """Write, read or delete which brokers' queues a topic that is read in order has."""
    if method == "get":
        return [{"topic": topic, "order_conf": await admin.namesrv.kv(ORDER_TOPIC_CONFIG, topic)}]
    if method == "delete":
        told = await admin.namesrv.delete_kv(ORDER_TOPIC_CONFIG, topic)
        return [Done(namesrv, f"order of topic {topic} deleted") for namesrv in told]
    if method != "put" or not conf:
        raise ValueError("-m: get, delete, or put with -v, such as -m put -v RaftNode00:8")
    told = await admin.namesrv.put_kv(ORDER_TOPIC_CONFIG, topic, conf)
    return [Done(namesrv, f"order of topic {topic}: {conf}") for namesrv in told]


@command
async def delete_topic(
    admin: Admin,
    topic: TopicOption,
    cluster: Annotated[str, Option("-c", "--clusterName", help="The cluster that has it.")],
) -> Result:
    """Delete a topic from a cluster's brokers and from the NameServers. Its messages cannot be read any more."""
    leaders = await admin.topics.delete(topic, cluster)
    done = [Done(leader, f"topic {topic} deleted") for leader in leaders]
    told = await admin.namesrv.delete_kv(ORDER_TOPIC_CONFIG, topic)
    return done + [Done(namesrv, f"topic {topic} deleted, with its order") for namesrv in told]
