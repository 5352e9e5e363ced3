"""Topics, as a tool looks at and changes them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from message.names import is_retry_or_dlq_topic
from mqclient.admin.admin_calls import AdminCalls, AdminError, at_each, leader_of, reader_of
from mqclient.admin_results import QueueStatus, TopicGroup, TopicRouteRow, TopicStats
from remoting.bodies import admin_bodies
from remoting.bodies.bodies import MASTER_ID, TopicList
from remoting.bodies.topic_bodies import TopicConfig, TopicConfigSerializeWrapper
from remoting.codes import RequestCode, ResponseCode
from remoting.headers import admin_headers, headers

TABLE_TIMEOUT_S = 15.0  # a table of tens of thousands takes its time


class TopicAdmin:
    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    # Looking

    async def names(self, cluster: str = "") -> list[str]:
        """Every topic that a broker has registered; of one cluster, if it is named."""
        if cluster:
            await self._calls.groups(cluster)  # a name that nobody has is a mistake, and not an empty cluster
            answer = await self._calls.ask_namesrv(
                RequestCode.GET_TOPICS_BY_CLUSTER, headers.GetTopicsByClusterRequestHeader(cluster=cluster)
            )
        else:
            answer = await self._calls.ask_namesrv(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(answer.read(TopicList).topic_list)

    async def names_with_groups(self) -> list[TopicGroup]:
        """A row per topic and group that reads it, but for topics of retries and dead letters."""
        rows = []
        info = await self._calls.cluster_info()
        for cluster in sorted(info.cluster_addr_table):
            for topic in await self.names(cluster):
                if not is_retry_or_dlq_topic(topic):
                    groups: list[str | None] = [*await self.consumers(topic)]
                    rows += [TopicGroup(cluster, topic, group) for group in groups or [None]]
        return rows

    async def route(self, topic: str) -> list[TopicRouteRow]:
        route = await self._calls.route(topic)
        queues = {data.broker_name: data for data in route.queue_datas}
        return [
            TopicRouteRow(
                broker=group.broker_name,
                cluster=group.cluster,
                leader=group.broker_addrs.get(MASTER_ID),
                followers=tuple(
                    address
                    for broker_id, address in sorted(group.broker_addrs.items())
                    if broker_id != MASTER_ID
                ),
                read_queues=queues[group.broker_name].read_queue_nums,
                write_queues=queues[group.broker_name].write_queue_nums,
                perm=queues[group.broker_name].perm,
            )
            for group in route.broker_datas
            if group.broker_name in queues
        ]

    async def clusters(self, topic: str) -> list[str]:
        """Those whose brokers have the topic."""
        return sorted({group.cluster for group in (await self._calls.route(topic)).broker_datas})

    async def status(self, topic: str) -> list[QueueStatus]:
        rows = []
        for group in (await self._calls.route(topic)).broker_datas:
            answer = await self._calls.call(
                reader_of(group),
                RequestCode.GET_TOPIC_STATS_INFO,
                admin_headers.GetTopicStatsInfoRequestHeader(topic=topic),
            )
            rows += [
                QueueStatus(
                    queue.broker_name,
                    queue.queue_id,
                    offsets.min_offset,
                    offsets.max_offset,
                    offsets.last_update_timestamp or None,
                )
                for queue, offsets in answer.read(admin_bodies.TopicStatsTable).offset_table.items()
            ]
        return sorted(rows, key=lambda row: (row.broker, row.queue))

    async def consumers(self, topic: str) -> list[str]:
        """Groups that read the topic now, or have committed an offset of it."""
        groups: set[str] = set()
        for group in (await self._calls.route(topic)).broker_datas:
            answer = await self._calls.call(
                reader_of(group),
                RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
                admin_headers.QueryTopicConsumeByWhoRequestHeader(topic=topic),
            )
            groups.update(answer.read(admin_bodies.GroupList).group_list)
        return sorted(groups)

    async def stats(self, topic: str) -> list[TopicStats]:
        """Rates and counts of a topic, a row per group that reads it."""
        leaders = [leader_of(group) for group in (await self._calls.route(topic)).broker_datas]
        in_tps, in_24h = await self._counts(leaders, "TOPIC_PUT_NUMS", topic)
        rows = []
        for group in await self.consumers(topic):
            out_tps, out_24h = await self._counts(leaders, "GROUP_GET_NUMS", f"{topic}@{group}")
            diff = 0
            for leader in leaders:
                answer = await self._calls.call(
                    leader,
                    RequestCode.GET_CONSUME_STATS,
                    admin_headers.GetConsumeStatsRequestHeader(consumer_group=group, topic=topic),
                )
                offsets = answer.read(admin_bodies.ConsumeStats).offset_table.values()
                diff += sum(queue.broker_offset - queue.consumer_offset for queue in offsets)
            rows.append(TopicStats(topic, group, max(diff, 0), in_tps, out_tps, in_24h, out_24h))
        return rows or [TopicStats(topic, None, 0, in_tps, 0.0, in_24h, 0)]

    async def _counts(self, leaders: Iterable[str], name: str, key: str) -> tuple[float, int]:
        """Per second over the last minute, and the sum of the day."""
        tps, total = 0.0, 0
        for leader in leaders:
            answer = await self._calls.ask(
                leader,
                RequestCode.VIEW_BROKER_STATS_DATA,
                admin_headers.ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key),
            )
            if answer.code != ResponseCode.SUCCESS:
                continue  # nothing was counted yet
            stats = answer.read(admin_bodies.BrokerStatsData)
            tps += stats.stats_minute.tps
            # The longest span that has been counted yet.
            spans = (stats.stats_day, stats.stats_hour, stats.stats_minute)
            total += next((span.sum for span in spans if span.sum), 0)
        return tps, total

    async def configs(self, address: str) -> list[TopicConfig]:
        """All that one broker has, by name."""
        answer = await self._calls.call(address, RequestCode.GET_ALL_TOPIC_CONFIG, timeout_s=TABLE_TIMEOUT_S)
        table = answer.read(TopicConfigSerializeWrapper).topic_config_table
        return [table[name] for name in sorted(table)]

    async def system_names(self, address: str) -> list[str]:
        """Those that one broker has without being told."""
        answer = await self._calls.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return sorted(answer.read(TopicList).topic_list)

    # Changing

    async def put(self, address: str, config: TopicConfig, attribute_changes: str = "") -> None:
        """Makes a topic, or changes it, at the group that `address` leads. `attribute_changes`: `+key=value,-key`."""
        header = headers.CreateTopicRequestHeader(
            topic=config.topic_name,
            default_topic="TBW102",
            read_queue_nums=config.read_queue_nums,
            write_queue_nums=config.write_queue_nums,
            perm=config.perm,
            topic_filter_type=config.topic_filter_type,
            topic_sys_flag=config.topic_sys_flag,
            order=config.order,
            attributes=attribute_changes or None,
        )
        await self._calls.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    async def put_all(self, address: str, configs: list[TopicConfig]) -> None:
        """As `put`, for all of them or for none."""
        body = admin_bodies.CreateTopicListRequestBody(topic_config_list=configs)
        await self._calls.call(
            address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode(), timeout_s=TABLE_TIMEOUT_S
        )

    async def set_perm(self, address: str, topic: str, perm: int) -> None:
        """All else stays as it is."""
        config = next((c for c in await self.configs(address) if c.topic_name == topic), None)
        if config is None:
            raise AdminError(f"{address} has no topic {topic}: topicRoute shows who has it")
        config.perm = perm
        await self.put(address, config)

    async def delete(self, topic: str, cluster: str) -> list[str]:
        """Deletes it at the cluster's groups, and then at every NameServer. Returns the leaders that did.

        A topic that is not there is a mistake: what was meant has another name.
        """
        leaders = await self._calls.leaders(cluster)
        if topic not in await self.names():
            raise AdminError(f"no NameServer knows topic {topic}: topicList shows the topics there are")
        await self.forget(topic, cluster, leaders)
        return leaders

    async def forget(
        self, topic: str, cluster: str, leaders: Iterable[str], *, done: Iterable[str] = ()
    ) -> None:
        """As `delete`, whether it is there or not. `done`: where something was changed before that."""
        header = headers.DeleteTopicRequestHeader(topic=topic)
        at = await at_each(
            leaders,
            lambda leader: self._calls.call(leader, RequestCode.DELETE_TOPIC_IN_BROKER, header),
            done=done,
        )
        await self._calls.tell_namesrvs(
            RequestCode.DELETE_TOPIC_IN_NAMESRV,
            headers.DeleteTopicFromNamesrvRequestHeader(topic=topic, cluster_name=cluster),
            done=at,
        )

    async def all_stats(self, *, only: str = "", active: bool = False) -> list[TopicStats]:
        """`stats` of every topic, or of one; with `active` only what moved within the day."""
        topics = [topic for topic in await self.names() if not is_retry_or_dlq_topic(topic)]
        if only and only not in topics:
            raise AdminError(f"no NameServer knows topic {only}: topicList shows the topics there are")
        limit = asyncio.Semaphore(16)

        async def one(topic: str) -> list[TopicStats]:
            async with limit:
                return await self.stats(topic)

        found = await asyncio.gather(*(one(topic) for topic in ([only] if only else topics)))
        return [row for rows in found for row in rows if not active or row.in_24h or row.out_24h]
