"""Commands about consumer groups, producers and their clients."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from mq.admin.bean_files import read_beans
from mq.admin.command import Done, Report, Result, command
from mq.admin.options import Bool, BrokerOption, GroupOption, LeadersOption, Option, TopicOption
from mq.admin.targets import done_at_each, leaders_of
from mqclient import Admin, AdminError
from remoting.bodies.bodies import SubscriptionGroupConfig
from remoting.codes import ResponseCode

ConsumerGroupOption = Annotated[str, Option("-g", "--consumerGroup", "--group", help="Consumer group.")]


@command
async def consumer_progress(
    admin: Admin,
    group: Annotated[str, Option("-g", "--groupName", "--group", help="One group; else all.")] = "",
    topic: Annotated[str, Option("-t", "--topicName", "--topic", help="One topic; else all.")] = "",
    show_client: Annotated[Bool, Option("-s", "--showClientIP", help="Who reads each queue.")] = Bool.FALSE,
) -> Result:
    """How far groups have read: a row per group, or with -g per queue."""
    if not group:
        return await admin.groups.all_progress()
    rows, tps = await admin.groups.progress_with_tps(group, topic, clients=bool(show_client))
    diff, inflight = sum(row.diff for row in rows), sum(row.inflight for row in rows)
    return Report(rows, f"\ndiff {diff}, in flight {inflight}, {tps:.2f} messages a second")


@command
async def consumer_connection(admin: Admin, group: ConsumerGroupOption, broker: BrokerOption = "") -> Result:
    """Clients of a group, and what it subscribes."""
    found = await admin.groups.connections(group, broker)
    told = f"{found.consume_type}, {found.message_model}, {found.consume_from_where}"
    subscribed = "".join(f"\n{item.topic}  {item.expression}  {item.type}" for item in found.subscriptions)
    return Report(found.clients, f"\n{told}{subscribed}", found)


@command
async def consumer_status(
    admin: Admin,
    group: ConsumerGroupOption,
    client_id: Annotated[str, Option("-i", "--clientId", help="One client; else all.")] = "",
    broker: BrokerOption = "",
    stacks: Annotated[bool, Option("-s", "--jstack", help="With the stacks of its threads.")] = False,
) -> Result:
    """What each client of a group tells of itself, and whether they subscribe the same."""
    found = await admin.groups.connections(group, broker)
    clients = [client.client_id for client in found.clients if client_id in ("", client.client_id)]
    if not clients:
        raise AdminError(f"no client {client_id} in group {group}: consumerConnection shows those there are")
    infos = {
        client: await admin.groups.running_info(group, client, stacks=stacks, address=broker)
        for client in clients
    }
    if client_id:
        return {"client": client_id, **_shown_info(infos[client_id])}
    subscriptions = {
        str(sorted((item["topic"], item["subString"]) for item in info.get("subscriptionSet", [])))
        for info in infos.values()
    }
    rows = [
        {
            "client": client,
            "queues": len(info.get("mqTable", {})),
            "cached": sum(queue.get("cachedMsgCount", 0) for queue in info.get("mqTable", {}).values()),
            "version": info.get("properties", {}).get("PROP_CLIENT_VERSION"),
            "type": info.get("properties", {}).get("PROP_CONSUME_TYPE"),
        }
        for client, info in infos.items()
    ]
    same = "all subscribe the same" if len(subscriptions) == 1 else "WARNING: they do not subscribe the same"
    return Report(rows, f"\n{same}", {client: _shown_info(info) for client, info in infos.items()})


def _shown_info(info: dict[str, Any]) -> dict[str, Any]:
    """With a name of its own for each queue, where Java has a whole object for a key."""
    queues = {
        "{topic} {brokerName} {queueId}".format(**dict(queue)): state
        for queue, state in info.get("mqTable", {}).items()
    }
    return {**info, "mqTable": queues}


@command
async def producer_connection(
    admin: Admin,
    group: Annotated[str, Option("-g", "--producerGroup", "--group", help="Producer group.")],
    topic: TopicOption,
) -> Result:
    """Clients of a producer group."""
    return await admin.groups.producer_connections(group, topic)


@command
async def producer(admin: Admin, broker: Annotated[str, Option("-b", "--broker", metavar="ADDR")]) -> Result:
    """Every producer that is connected to a broker."""
    return await admin.groups.producers(broker)


@command
async def get_consumer_config(admin: Admin, group: GroupOption) -> Result:
    """How a group is configured, at each broker."""
    found = await admin.groups.config(group)
    return {
        broker: {
            name: value
            for name, value in msgspec.to_builtins(config).items()
            if value is not None and value != {}
        }
        for broker, config in found.items()
    }


@command
async def update_sub_group(
    admin: Admin,
    group: GroupOption,
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
    consume: Annotated[Bool, Option("-s", "--consumeEnable")] = Bool.TRUE,
    from_min: Annotated[Bool, Option("-m", "--consumeFromMinEnable")] = Bool.FALSE,
    broadcast: Annotated[Bool, Option("-d", "--consumeBroadcastEnable")] = Bool.FALSE,
    orderly: Annotated[Bool, Option("-o", "--consumeMessageOrderly")] = Bool.FALSE,
    retry_queues: Annotated[int, Option("-q", "--retryQueueNums")] = 1,
    retry_times: Annotated[int, Option("-r", "--retryMaxTimes")] = 16,
    broker_id: Annotated[int, Option("-i", "--brokerId")] = 0,
    slow_broker_id: Annotated[int, Option("-w", "--whichBrokerWhenConsumeSlowly")] = 1,
    notify: Annotated[Bool, Option("-a", "--notifyConsumerIdsChanged")] = Bool.TRUE,
) -> Result:
    """Make a consumer group or change it, at one broker, a cluster, or everywhere."""
    config = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=bool(consume),
        consume_from_min_enable=bool(from_min),
        consume_broadcast_enable=bool(broadcast),
        consume_message_orderly=bool(orderly),
        retry_queue_nums=retry_queues,
        retry_max_times=retry_times,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_broker_id,
        notify_consumer_ids_changed_enable=bool(notify),
    )
    leaders = await leaders_of(admin, broker, cluster)
    return await done_at_each(leaders, lambda leader: admin.groups.put(leader, config), f"group {group}")


@command
async def update_sub_group_list(
    admin: Admin,
    file: Annotated[Path, Option("-f", "--filename", help="JSON, a list of group configs.")],
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Make or change all groups of a file, or none of them."""
    configs = read_beans(file, SubscriptionGroupConfig)
    return await done_at_each(
        await leaders_of(admin, broker, cluster),
        lambda leader: admin.groups.put_all(leader, configs),
        *(f"group {config.group_name}" for config in configs),
    )


@command
async def set_consume_mode(
    admin: Admin,
    topic: Annotated[str, Option("-t", "--topicName", "--topic", help="topic")],
    group: GroupOption,
    mode: Annotated[str, Option("-m", "--mode", help="PULL or POP.")],
    share: Annotated[
        int,
        Option("-q", "--popShareQueueNum", help="By pops: how many other clients share the queues of each."),
    ] = -1,
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
) -> Result:
    """Turn the push consumers of a group to pops or back to pulls; they go on where they are."""
    mode = mode.upper()
    if mode not in ("PULL", "POP"):
        raise ValueError(f"-m: PULL or POP, not {mode}")
    return await done_at_each(
        await leaders_of(admin, broker, cluster),
        lambda leader: admin.groups.set_request_mode(leader, group, topic, mode, share),
        f"group {group} gets topic {topic} by {mode}",
    )


@command
async def delete_sub_group(
    admin: Admin,
    group: GroupOption,
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
    remove_offset: Annotated[
        Bool, Option("-r", "--removeOffset", help="And forget how far it has read.")
    ] = Bool.FALSE,
) -> Result:
    """Delete a group from one broker; or from a cluster, with its %RETRY% and %DLQ% topics."""
    if not broker and not cluster:
        raise ValueError("name one broker with -b, or the cluster with -c")
    what = f"group {group} deleted"
    try:
        await admin.groups.config(group)
    except AdminError as error:
        if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
            raise
        # Asked again, as after a failure half way: what it had besides may still be there.
        what = f"no broker knows group {group} any more, deleted all the same"
    if remove_offset:
        what += ", with its offsets"
    if broker:
        await admin.groups.delete(broker, group, clean_offsets=bool(remove_offset))
        return [Done(broker, what)]
    leaders = await admin.groups.delete_in_cluster(group, cluster, clean_offsets=bool(remove_offset))
    return [Done(leader, f"{what}, and its topics of retries and dead letters") for leader in leaders]
