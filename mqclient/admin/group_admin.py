"""Consumer groups, producers and their clients, as a tool looks at and changes them."""

from __future__ import annotations

from typing import Any

from msgspec import field

from message.names import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from mqclient.admin.admin_calls import AdminAnswer, AdminCalls, AdminError, at_each, leader_of, reader_of
from mqclient.admin.topic_admin import TABLE_TIMEOUT_S, TopicAdmin
from mqclient.admin_results import (
    ClientConnection,
    ConsumerConnections,
    GroupProgress,
    ProducerClient,
    QueueOffset,
    QueueProgress,
    Subscription,
)
from mqclient.route.topic_route import topic_route_of
from remoting.bodies import admin_bodies
from remoting.bodies.bodies import BrokerData, MessageQueue, RemotingBody, SubscriptionGroupConfig
from remoting.bodies.pop_bodies import SetMessageRequestModeRequestBody
from remoting.codes import RequestCode, ResponseCode
from remoting.headers import admin_headers, headers

RUNNING_INFO_TIMEOUT_S = 15.0  # the broker waits 10 s for the client


class _GroupTable(RemotingBody):
    subscription_group_table: dict[str, SubscriptionGroupConfig] = field(default_factory=dict)


class GroupAdmin:
    def __init__(self, calls: AdminCalls, topics: TopicAdmin) -> None:
        self._calls = calls
        self._topics = topics

    # How groups are configured

    async def configs(self, address: str) -> list[SubscriptionGroupConfig]:
        """All that one broker has, by name."""
        answer = await self._calls.call(
            address, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, timeout_s=TABLE_TIMEOUT_S
        )
        table = answer.read(_GroupTable).subscription_group_table
        return [table[name] for name in sorted(table)]

    async def config(self, group: str) -> dict[str, SubscriptionGroupConfig]:
        """By broker name. Raises AdminError when no broker has the group."""
        found = {}
        for brokers in await self._calls.groups():
            for config in await self.configs(reader_of(brokers)):
                if config.group_name == group:
                    found[brokers.broker_name] = config
        if not found:
            raise AdminError(
                f"no broker knows group {group}: consumerProgress without -g shows the groups there are",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        return found

    async def put(self, address: str, config: SubscriptionGroupConfig) -> None:
        """Makes a group, or changes it, at the group of brokers that `address` leads."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._calls.call(address, code, body=config.encode())

    async def put_all(self, address: str, configs: list[SubscriptionGroupConfig]) -> None:
        """As `put`, for all of them or for none."""
        body = admin_bodies.SubscriptionGroupList(group_config_list=configs)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        await self._calls.call(address, code, body=body.encode(), timeout_s=TABLE_TIMEOUT_S)

    async def set_request_mode(
        self, address: str, group: str, topic: str, mode: str, pop_share_queue_num: int = -1
    ) -> None:
        """Has clients that ask brokers for their queues get the topic's messages by pulls (PULL) or pops (POP), the
        latter from the queues of so many others as well, or of all (-1). The group goes on where it is.
        """
        body = SetMessageRequestModeRequestBody(
            topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=pop_share_queue_num
        )
        await self._calls.call(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body.encode())

    async def delete(self, address: str, group: str, *, clean_offsets: bool = False) -> None:
        header = admin_headers.DeleteSubscriptionGroupRequestHeader(
            group_name=group, clean_offset=clean_offsets
        )
        await self._calls.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)

    async def delete_in_cluster(self, group: str, cluster: str, *, clean_offsets: bool = False) -> list[str]:
        """At every group of brokers, with its topics of retries and dead letters. Returns the leaders that did."""
        leaders = await self._calls.leaders(cluster)
        await at_each(leaders, lambda leader: self.delete(leader, group, clean_offsets=clean_offsets))
        for prefix in (RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX):
            await self._topics.forget(prefix + group, cluster, leaders, done=leaders)
        return leaders

    # How far groups are

    async def progress(self, group: str, topic: str = "", *, clients: bool = False) -> list[QueueProgress]:
        """Each queue of the topic, or of all that the group has read. `clients`: with who reads it."""
        return (await self.progress_with_tps(group, topic, clients=clients))[0]

    async def progress_with_tps(
        self, group: str, topic: str = "", *, clients: bool = False
    ) -> tuple[list[QueueProgress], float]:
        """And how many messages a second the group is given."""
        rows: list[QueueProgress] = []
        tps = 0.0
        brokers = (await self._calls.route(topic)).broker_datas if topic else await self._brokers_of(group)
        readers = await self._readers(group) if clients else {}
        for group_of_brokers in brokers:
            answer = await self._calls.call(
                reader_of(group_of_brokers),
                RequestCode.GET_CONSUME_STATS,
                admin_headers.GetConsumeStatsRequestHeader(consumer_group=group, topic=topic or None),
            )
            stats = answer.read(admin_bodies.ConsumeStats)
            tps += stats.consume_tps
            for queue, offsets in stats.offset_table.items():
                end, offset = offsets.broker_offset, offsets.consumer_offset
                rows.append(
                    QueueProgress(
                        queue.topic, queue.broker_name, queue.queue_id, end, offset,
                        diff=end - offset,
                        inflight=max((offsets.pull_offset or 0) - offset, 0),
                        last_time_ms=offsets.last_timestamp or None,
                        client=readers.get(queue),
                    )
                )  # fmt: skip
        if not any(row.consumer_offset for row in rows):
            # A group that nobody knows is a mistake, and not one that has read nothing.
            await self.config(group)
        return sorted(rows, key=lambda row: (row.topic, row.broker, row.queue)), tps

    async def all_progress(self) -> list[GroupProgress]:
        """A row per group that has consumed, or could. It is known by its topic of retries."""
        groups = [
            topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
            for topic in await self._topics.names()
            if topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        ]
        return [await self._one_progress(group) for group in groups]

    async def _one_progress(self, group: str) -> GroupProgress:
        rows: list[QueueProgress] = []
        tps = 0.0
        try:
            rows, tps = await self.progress_with_tps(group)
        except AdminError as error:
            if error.code != ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST:
                raise
            # It was deleted, and its topic of retries was left behind.
        diff = sum(row.diff for row in rows)
        try:
            found = await self.connections(group)
        except AdminError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            return GroupProgress(group, 0, None, None, None, tps, diff)
        version = min((client.version for client in found.clients), default=None)
        kind = "PULL" if found.consume_type == "CONSUME_ACTIVELY" else "PUSH"
        return GroupProgress(group, len(found.clients), version, kind, found.message_model, tps, diff)

    async def _brokers_of(self, group: str) -> list[BrokerData]:
        """Who knows the group: where its topic of retries is, or anybody when it has none yet."""
        try:
            return (await self._calls.route(RETRY_GROUP_TOPIC_PREFIX + group)).broker_datas
        except AdminError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            return await self._calls.groups()

    async def reset_offsets(
        self, group: str, topic: str, timestamp_ms: int, *, cluster: str = "", force: bool = True
    ) -> list[QueueOffset]:
        """To the first message that is not older; -1: behind the last one. Consumers at work go on from there."""
        brokers = (await self._calls.route(topic)).broker_datas
        # All leaders are looked for first: half of a reset is worse than none.
        leaders = [leader_of(item) for item in brokers if not cluster or item.cluster == cluster]
        if not leaders:
            raise AdminError(f"cluster {cluster} has no topic {topic}: topicClusterList shows who has it")
        header = admin_headers.ResetOffsetRequestHeader(
            group=group, topic=topic, queue_id=-1, timestamp=timestamp_ms, is_force=force
        )
        answers = await at_each(
            leaders,
            lambda leader: self._calls.call(leader, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header),
        )
        rows = [row for answer in answers.values() for row in _reset_rows(answer)]
        return sorted(rows, key=lambda row: (row.broker, row.queue))

    async def reset_queue_offset(
        self, address: str, group: str, topic: str, queue_id: int, offset: int
    ) -> list[QueueOffset]:
        """One queue, at the group of brokers that `address` leads."""
        header = admin_headers.ResetOffsetRequestHeader(
            group=group, topic=topic, queue_id=queue_id, offset=offset, timestamp=0, is_force=True
        )
        answer = await self._calls.call(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        return _reset_rows(answer)

    async def clone_offsets(self, source: str, destination: str, topic: str) -> list[QueueOffset]:
        """Has one group stand where another one stands in a topic. Queues of which that one has no offset stay as they
        are: progress shows 0 for these, too.
        """
        route = await self._calls.route(topic)
        leaders = {group.broker_name: leader_of(group) for group in route.broker_datas}
        found: dict[str, QueueOffset] = {}
        for queue in sorted(topic_route_of(topic, route).subscribe_queues):
            header = headers.QueryConsumerOffsetRequestHeader(
                consumer_group=source, topic=topic, queue_id=queue.queue_id, set_zero_if_not_found=False
            )
            leader = leaders.get(queue.broker_name)
            if leader is None:
                raise AdminError(f"broker {queue.broker_name} has no member now", retriable=True)
            answer = await self._calls.ask(leader, RequestCode.QUERY_CONSUMER_OFFSET, header)
            if answer.code != ResponseCode.QUERY_NOT_FOUND:
                offset = answer.checked().number("offset")
                name = f"queue {queue.queue_id} of {queue.broker_name}"
                found[name] = QueueOffset(topic, queue.broker_name, queue.queue_id, offset)
        if not found:
            raise AdminError(
                f"group {source} has committed no offset of topic {topic}: consumerProgress shows the groups there are"
            )

        async def commit(name: str) -> None:
            row = found[name]
            header = headers.UpdateConsumerOffsetRequestHeader(
                consumer_group=destination, topic=topic, queue_id=row.queue, commit_offset=row.offset
            )
            await self._calls.call(leaders[row.broker], RequestCode.UPDATE_CONSUMER_OFFSET, header)

        await at_each(found, commit)
        return list(found.values())

    # Clients

    async def connections(self, group: str, address: str = "") -> ConsumerConnections:
        """Raises AdminError, CONSUMER_NOT_ONLINE when none of the group is connected."""
        answer = await self._calls.call(
            address or reader_of((await self._brokers_of(group))[0]),
            RequestCode.GET_CONSUMER_CONNECTION_LIST,
            admin_headers.GetConsumerConnectionListRequestHeader(consumer_group=group),
        )
        found = answer.read(admin_bodies.ConsumerConnection)
        return ConsumerConnections(
            _connections(found.connection_set),
            [
                Subscription(item.topic, item.sub_string, item.expression_type)
                for _, item in sorted(found.subscription_table.items())
            ],
            found.consume_type,
            found.message_model,
            found.consume_from_where,
        )

    async def running_info(
        self, group: str, client_id: str, *, stacks: bool = False, address: str = ""
    ) -> dict[str, Any]:
        """What a client tells of itself, as Java's names have it."""
        answer = await self._ask_running_info(group, client_id, stacks=stacks, address=address)
        answer.read(admin_bodies.ConsumerRunningInfo)  # whoever shows it counts on its form
        info = answer.json_object()
        return {key: value for key, value in info.items() if value is not None}

    async def _ask_running_info(
        self, group: str, client_id: str, *, stacks: bool = False, address: str = ""
    ) -> AdminAnswer:
        return await self._calls.call(
            address or reader_of((await self._brokers_of(group))[0]),
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            admin_headers.GetConsumerRunningInfoRequestHeader(
                consumer_group=group, client_id=client_id, jstack_enable=stacks
            ),
            timeout_s=RUNNING_INFO_TIMEOUT_S,
        )

    async def _readers(self, group: str) -> dict[MessageQueue, str]:
        """Which client reads a queue, by what the clients say. Those that do not answer are left out."""
        try:
            clients = (await self.connections(group)).clients
        except AdminError:
            return {}
        readers = {}
        for client in clients:
            try:
                answer = await self._ask_running_info(group, client.client_id)
                queues = answer.read(admin_bodies.ConsumerRunningInfo).mq_table
            except AdminError:
                continue
            readers.update(dict.fromkeys(queues, client.client_id))
        return readers

    async def producer_connections(self, group: str, topic: str) -> list[ClientConnection]:
        route = await self._calls.route(topic)
        answer = await self._calls.call(
            reader_of(route.broker_datas[0]),
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            admin_headers.GetProducerConnectionListRequestHeader(producer_group=group),
        )
        return _connections(answer.read(admin_bodies.ProducerConnection).connection_set)

    async def producers(self, address: str) -> list[ProducerClient]:
        """Every producer that is connected to one broker."""
        answer = await self._calls.call(address, RequestCode.GET_ALL_PRODUCER_INFO)
        data = answer.read(admin_bodies.ProducerTableInfo).data
        return [
            ProducerClient(
                group, item.client_id, item.remote_ip, item.language, item.version, item.last_update_timestamp
            )
            for group in sorted(data)
            for item in sorted(data[group], key=lambda item: item.client_id)
        ]


def _reset_rows(answer: AdminAnswer) -> list[QueueOffset]:
    if not answer.body:
        return []
    table = answer.read(admin_bodies.ResetOffsetBody).offset_table
    return [QueueOffset(q.topic, q.broker_name, q.queue_id, offset) for q, offset in table.items()]


def _connections(found: list[admin_bodies.Connection]) -> list[ClientConnection]:
    rows = [ClientConnection(item.client_id, item.client_addr, item.language, item.version) for item in found]
    return sorted(rows, key=lambda row: row.client_id)
