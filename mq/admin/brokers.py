"""Commands about brokers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import msgspec
import orjson

from message.names import is_retry_or_dlq_topic, is_system_group
from mq.admin.command import Done, Report, Result, command
from mq.admin.options import Bool, BrokerOption, ClusterOption, LeadersOption, Option
from mq.admin.targets import done_at_each, leaders_of, members_of, seen_at_each
from mqclient import Admin
from mqclient.admin.admin_calls import at_each
from mqclient.admin_results import DamagedRange, RepairProgress

EachMemberOption = Annotated[str, Option("-c", "--cluster", help="Every broker of this cluster.")]


@command
async def cluster_list(
    admin: Admin,
    more_stats: Annotated[bool, Option("-m", "--moreStats", help="What came and went, by day.")] = False,
    cluster: ClusterOption = "",
) -> Result:
    """Brokers by cluster and group; id 0 leads. HOURS: how far back the messages reach."""
    if more_stats:
        return await admin.brokers.day_counts(cluster)
    return await admin.brokers.members(cluster)


@command
async def broker_status(admin: Admin, broker: BrokerOption = "", cluster: ClusterOption = "") -> Result:
    """Runtime figures of one broker, a cluster's, or all."""
    seen, silent = await seen_at_each(admin, broker, cluster, admin.brokers.runtime_info)
    return Report(seen, silent=silent)


@command
async def broker_consume_stats(
    admin: Admin,
    broker: Annotated[str, Option("-b", "--brokerAddr", metavar="ADDR")],
    timeout_millis: Annotated[int, Option("-t", "--timeoutMillis", least=1)] = 50_000,
    level: Annotated[int, Option("-l", "--level", help="Only where so many messages wait.")] = 0,
    order: Annotated[Bool, Option("-o", "--order", help="Only topics that are read in order.")] = Bool.FALSE,
) -> Result:
    """How far each group has read each queue of a broker."""
    rows = await admin.brokers.consume_progress(broker, is_order=bool(order), timeout_s=timeout_millis / 1000)
    total = sum(row.diff for row in rows)
    return Report([row for row in rows if row.diff >= level], f"\ndiff {total}")


@command
async def ha_status(admin: Admin, broker: BrokerOption = "", cluster: ClusterOption = "") -> Result:
    """Who leads and how far its log reaches. More is in the broker's own /status."""
    seen, silent = await seen_at_each(admin, broker, cluster, admin.brokers.ha_status)
    return Report(seen, silent=silent)


@command
async def get_broker_config(admin: Admin, broker: BrokerOption = "", cluster: ClusterOption = "") -> Result:
    """Settings in effect of one broker, a cluster's, or all."""
    seen, silent = await seen_at_each(admin, broker, cluster, admin.brokers.config)
    return Report(seen, silent=silent)


@command
async def update_broker_config(
    admin: Admin,
    key: Annotated[str, Option("-k", "--key")],
    value: Annotated[str, Option("-v", "--value")],
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
    all_brokers: Annotated[
        Bool, Option("-a", "--updateAllBroker", help="With -c: the followers, too.")
    ] = Bool.FALSE,
) -> Result:
    """Change a setting until the broker stops. What has no effect is said to have none."""
    if not broker and not cluster:
        raise ValueError("name one broker with -b, or the cluster with -c")
    addresses = await (members_of if all_brokers else leaders_of)(admin, broker, cluster)
    remarks: dict[str, str] = {}

    async def update(address: str) -> None:
        remarks[address] = await admin.brokers.update_config(address, {key: value})

    return [
        Done(address, f"{key}={value}{remarks[address] and f' ({remarks[address]})'}")
        for address in await at_each(addresses, update)
    ]


LeaderOption = Annotated[str, Option("-b", "--brokerAddr", metavar="ADDR", help="the leader, host:port")]


@command
async def transfer_leader(
    admin: Admin,
    broker: LeaderOption = "",
    cluster: LeadersOption = "",
    transferee: Annotated[
        str,
        Option(
            "-t",
            "--transferee",
            metavar="ID",
            help="member that is to lead, such as n1; else the most caught up",
        ),
    ] = "",
) -> Result:
    """Have a leader hand over: sends wait for some tens of milliseconds, and none is lost."""
    if not broker and not cluster:
        raise ValueError("name the leader with -b, or the cluster with -c")
    leaders = await leaders_of(admin, broker, cluster)
    return list(
        (
            await at_each(leaders, lambda address: admin.brokers.transfer_leadership(address, transferee))
        ).values()
    )


MemberOption = Annotated[str, Option("-i", "--id", metavar="ID", help="Member, such as n1.")]
OneGroupOption = Annotated[
    str,
    Option(
        "-c", "--clusterName", "--cluster", help="the leader of this cluster, where that has only one group"
    ),
]


@command
async def member_list(
    admin: Admin,
    broker: Annotated[
        str, Option("-b", "--brokerAddr", metavar="ADDR", help="a member, host:port; the leader knows best")
    ] = "",
    cluster: OneGroupOption = "",
) -> Result:
    """Voters and learners of a group, as its leader knows them."""
    leader = await _one_leader(admin, broker, cluster)
    return await admin.brokers.group_members(leader)


@command
async def add_member(
    admin: Admin,
    member: MemberOption,
    address: Annotated[str, Option("-a", "--address", metavar="HOST:PORT", help="Of its port for peers.")],
    broker: LeaderOption = "",
    cluster: OneGroupOption = "",
) -> Result:
    """Take a member into a group: it is brought up as a learner and becomes a voter by itself."""
    leader = await _one_leader(admin, broker, cluster)
    await admin.brokers.add_member(leader, member, address)
    return [Done(leader, f"{member} at {address} is a learner; memberList shows when it is a voter")]


@command
async def remove_member(
    admin: Admin, member: MemberOption, broker: LeaderOption = "", cluster: OneGroupOption = ""
) -> Result:
    """Take a member out of a group, for good: stop it afterwards."""
    leader = await _one_leader(admin, broker, cluster)
    await admin.brokers.remove_member(leader, member)
    return [Done(leader, f"{member} is no member any more; stop it")]


async def _one_leader(admin: Admin, broker: str, cluster: str) -> str:
    if not broker and not cluster:
        raise ValueError("name the leader with -b, or the cluster with -c")
    leaders = await leaders_of(admin, broker, cluster)
    if len(leaders) != 1:
        raise ValueError(
            f"cluster {cluster} has {len(leaders)} groups with a leader: name one leader with -b"
        )
    return leaders[0]


@command
async def delete_expired_commit_log(
    admin: Admin,
    broker: BrokerOption = "",
    cluster: EachMemberOption = "",
) -> Result:
    """Have each broker delete data files that are past their time now, and not at its hour."""
    addresses = await members_of(admin, broker, cluster)
    return await done_at_each(
        addresses, admin.brokers.delete_expired_commit_log, "deletes data files that are past their time"
    )


@command
async def clean_expired_cq(
    admin: Admin,
    broker: BrokerOption = "",
    cluster: EachMemberOption = "",
) -> Result:
    """Have each broker delete the files of queues of whose messages none is left."""
    addresses = await members_of(admin, broker, cluster)
    return await done_at_each(
        addresses, admin.brokers.clean_expired_consume_queue, "deletes the files of queues without messages"
    )


@command
async def clean_unused_topic(
    admin: Admin,
    broker: BrokerOption = "",
    cluster: EachMemberOption = "",
) -> Result:
    """Have each broker delete the queue files of topics that were deleted."""
    addresses = await members_of(admin, broker, cluster)
    return await done_at_each(
        addresses, admin.brokers.clean_unused_topic, "deletes the queue files of topics that are no more"
    )


@command
async def scrub(admin: Admin, broker: BrokerOption = "", cluster: EachMemberOption = "") -> Result:
    """Have each broker read again all that it has on disk, and mend or repair what is damaged."""
    addresses = await members_of(admin, broker, cluster)
    return list((await at_each(addresses, admin.brokers.scrub)).values())


@command
async def scrub_status(admin: Admin, broker: BrokerOption = "", cluster: EachMemberOption = "") -> Result:
    """How far each broker is in reading its disk again, and what it has found."""
    seen, silent = await seen_at_each(admin, broker, cluster, admin.brokers.scrub_status)
    return Report(list(seen.values()), silent=silent)


@command
async def repair_status(admin: Admin, broker: BrokerOption = "", cluster: EachMemberOption = "") -> Result:
    """Which entries each broker knows to be damaged on its disk, and how far their repair and the scrub are."""
    seen, silent = await seen_at_each(admin, broker, cluster, admin.brokers.repair_status)
    told = list(seen.values())
    rows = [_damage_row(progress.address, damaged) for progress in told for damaged in progress.ranges]
    return Report(rows, "\n".join(map(_repair_line, told)), told, silent)


def _damage_row(address: str, damaged: DamagedRange) -> dict[str, object]:
    return {
        "address": address,
        "entries": f"{damaged.first_index}..{damaged.last_index}",
        "bytes": f"{damaged.first_byte}..{damaged.last_byte}",
        "files": damaged.files,
        "since_ms": damaged.since_ms,
        "stage": damaged.stage,
        "waits_for": damaged.peer,
        "refused": tuple(f"{peer}: {reason}" for peer, reason in damaged.refusals.items()),
        "repaired_bytes": damaged.repaired_bytes,
        "again_ms": damaged.retry_ms,
    }


def _repair_line(told: RepairProgress) -> str:
    scrub, count = told.scrub, len(told.ranges)
    reading = f"reads {scrub.round_bytes} of {scrub.size} bytes" if scrub.under_way else "reads nothing now"
    return (
        f"{told.address}: {count or 'no'} damaged {'range' if count == 1 else 'ranges'}; since its start "
        f"{told.repaired_ranges} repaired ({told.repaired_bytes} bytes), scrub rounds: {scrub.rounds}; {reading}"
    )


@command
async def export_metadata(
    admin: Admin,
    broker: BrokerOption = "",
    cluster: LeadersOption = "",
    file_path: Annotated[Path, Option("-f", "--filePath", help="Directory that gets the file.")] = Path(
        "/tmp/rocketmq/export"
    ),
    only_topics: Annotated[bool, Option("-t", "--topic", help="Topics alone.")] = False,
    only_groups: Annotated[bool, Option("-g", "--subscriptionGroup", help="Groups alone.")] = False,
    special: Annotated[
        bool, Option("-s", "--specialTopic", help="With topics of retries and dead letters.")
    ] = False,
) -> Result:
    """Write topics and groups, the system's left out, to a file that other tools read."""
    topics: dict[str, dict[str, object]] = {}
    groups: dict[str, dict[str, object]] = {}
    for leader in await leaders_of(admin, broker, cluster):
        of_system = await admin.topics.system_names(leader)
        for topic in await admin.topics.configs(leader):
            name = topic.topic_name
            if name in of_system or (is_retry_or_dlq_topic(name) and not special):
                continue
            before = topics.get(name)
            topics[name] = msgspec.to_builtins(topic)
            if before is not None:  # queues of several groups of brokers add up
                for field in ("readQueueNums", "writeQueueNums"):
                    topics[name][field] += before[field]  # type: ignore[operator]
        for group in await admin.groups.configs(leader):
            if not is_system_group(group.group_name or ""):
                groups[group.group_name or ""] = msgspec.to_builtins(group)
    name = "topic" if only_topics else "subscriptionGroup" if only_groups else "metadata"
    exported = {
        **({} if only_groups else {"topicConfigTable": topics}),
        **({} if only_topics else {"subscriptionGroupTable": groups}),
        "exportTime": time.time_ns() // 1_000_000,
    }
    file_path.mkdir(parents=True, exist_ok=True)
    file = file_path / f"{name}.json"
    file.write_bytes(orjson.dumps(exported, option=orjson.OPT_INDENT_2))
    return [Done(str(file), f"{len(topics)} topics, {len(groups)} groups")]
