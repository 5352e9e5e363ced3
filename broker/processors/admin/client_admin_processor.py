"""Clients as tools see them: who is connected (203, 204, 328), what a group subscribes (345), and what only a client
itself can tell or do (223, 307, 309), which is passed on to it.

Every member answers for the clients that send heartbeats to it, which is all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from broker.answers import AnyRequest, Request
from broker.clients.client_channel import ClientChannelInfo
from broker.clients.client_requests import ClientRequests
from broker.clients.consumer_manager import ConsumerGroupInfo, ConsumerManager
from broker.clients.producer_manager import ProducerManager
from broker.config.broker_config import BrokerConfig
from message.decoder import decode_message
from message.errors import MessageDecodeError
from message.message_id import decode_offset_message_id
from message.tags import SubscriptionData
from remoting.bodies import admin_bodies, bodies
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingBodyError
from remoting.frame.command import RemotingCommand
from remoting.headers import admin_headers
from remoting.headers.headers import CommandHeader

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

CALL_TIMEOUT_MS = 10_000
STATUS_TIMEOUT_MS = 5_000  # of each client of a group; all are asked at once


class ClientAdminProcessor:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        consumers: ConsumerManager,
        producers: ProducerManager,
        client_requests: ClientRequests,
    ) -> None:
        self._config = config
        self._store = store
        self._consumers = consumers
        self._producers = producers
        self._client_requests = client_requests

    # Who is connected

    def get_consumer_connections(
        self, request: Request[admin_headers.GetConsumerConnectionListRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        group = self._consumers.groups.get(header.consumer_group)
        if group is None:
            remark = f"the consumer group[{header.consumer_group}] not online"
            request.answer(ResponseCode.CONSUMER_NOT_ONLINE, remark)
            return
        body = admin_bodies.ConsumerConnection(
            connection_set=_connections(group.channels.values()),
            subscription_table={
                topic: shown_subscription(data) for topic, data in group.subscriptions.items()
            },
            consume_type=group.consume_type,
            message_model=group.message_model,
            consume_from_where=group.consume_from_where,
        )
        request.answer(body=body)

    def get_producer_connections(
        self, request: Request[admin_headers.GetProducerConnectionListRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        channels = self._producers.groups.get(header.producer_group)
        if channels is None:
            remark = f"the producer group[{header.producer_group}] not exist"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        body = admin_bodies.ProducerConnection(connection_set=_connections(channels.values()))
        request.answer(body=body)

    def get_all_producers(self, request: Request[CommandHeader], now_ms: int) -> None:
        body = admin_bodies.ProducerTableInfo(
            data={
                group: [
                    admin_bodies.ProducerInfo(
                        client_id=info.client_id,
                        remote_ip=f"/{info.channel.remote_address}",
                        language=info.language,
                        version=info.version,
                        last_update_timestamp=info.last_update_ms,
                    )
                    for info in channels.values()
                ]
                for group, channels in self._producers.groups.items()
            }
        )
        request.answer(body=body)

    def query_subscription(
        self, request: Request[admin_headers.QuerySubscriptionByConsumerRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        data = self._consumers.subscriptions(header.group).get(header.topic)
        body = admin_bodies.QuerySubscriptionResponseBody(
            group=header.group,
            topic=header.topic,
            subscription_data=shown_subscription(data) if data is not None else None,
        )
        request.answer(body=body)

    # Passed on

    def get_running_info(
        self, request: Request[admin_headers.GetConsumerRunningInfoRequestHeader], now_ms: int
    ) -> None:
        header = request.header
        self._pass_on(request, header.consumer_group, header.client_id, request.ext_fields, b"", now_ms)

    def consume_directly(
        self, request: Request[admin_headers.ConsumeMessageDirectlyResultRequestHeader], now_ms: int
    ) -> None:
        """The client gets the message itself, for it could not read it by its id, and the broker's name, which the
        message does not say."""
        header = request.header
        body = bytes(request.body)
        if header.msg_id:
            try:
                _, phy_offset = decode_offset_message_id(header.msg_id)
            except MessageDecodeError as error:
                request.answer(ResponseCode.INVALID_PARAMETER, str(error))
                return
            record = self._store.reads.look_message_by_offset(phy_offset)
            if record is None:
                remark = f"can not find message by the id, {header.msg_id}"
                request.answer(ResponseCode.SYSTEM_ERROR, remark)
                return
            if refusal := request.refusal_of_topic(decode_message(record).topic):
                request.answer(ResponseCode.NO_PERMISSION, refusal)
                return
            body = record
        fields = {**request.ext_fields, "brokerName": self._config.broker_name}
        self._pass_on(request, header.consumer_group, header.client_id or "", fields, body, now_ms)

    def _pass_on(
        self,
        request: AnyRequest,
        group: str,
        client_id: str,
        ext_fields: dict[str, str],
        body: bytes,
        now_ms: int,
    ) -> None:
        """Asks one client the same, and answers as it does."""
        info = self._find_client(group, client_id)
        if info is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return

        def on_answer(answer: RemotingCommand | None) -> None:
            if answer is None:
                remark = f"consumer <{group}> <{client_id}> Timeout: no answer in {CALL_TIMEOUT_MS} ms"
                request.answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
            else:
                fields = dict(answer.ext_fields)
                request.answer(answer.code, answer.remark, fields, bytes(answer.body))

        deadline_ms = now_ms + CALL_TIMEOUT_MS
        self._client_requests.call(info.channel, request.code, ext_fields, body, deadline_ms, on_answer)

    def get_consumer_status(
        self, request: Request[admin_headers.GetConsumerStatusRequestHeader], now_ms: int
    ) -> None:
        """Where each client of a group stands by its own account. Those that do not answer in time are left out."""
        header = request.header
        group = self._consumers.groups.get(header.group)
        asked = list(group.channels.values()) if group is not None else []
        if header.client_addr:
            asked = [info for info in asked if info.client_id == header.client_addr]
        if not asked:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
            return
        _StatusRound(request, asked).ask(
            self._client_requests,
            {"topic": header.topic, "group": header.group},
            now_ms + STATUS_TIMEOUT_MS,
        )

    def _find_client(self, group: str, client_id: str) -> ClientChannelInfo | None:
        info: ConsumerGroupInfo | None = self._consumers.groups.get(group)
        channels = info.channels.values() if info is not None else ()
        return next((item for item in channels if item.client_id == client_id), None)


class _StatusRound:
    """One GET_CONSUMER_STATUS_FROM_CLIENT to each of some clients; the last to answer, or not to, ends it."""

    def __init__(self, request: AnyRequest, asked: list[ClientChannelInfo]) -> None:
        self._request = request
        self._asked = asked
        self._left_count = len(asked)
        self._table: dict[str, dict[bodies.MessageQueue, int]] = {}

    def ask(self, client_requests: ClientRequests, ext_fields: dict[str, str], deadline_ms: int) -> None:
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        for info in self._asked:

            def on_answer(answer: RemotingCommand | None, client_id: str = info.client_id) -> None:
                self._answered(client_id, answer)

            client_requests.call(info.channel, code, ext_fields, b"", deadline_ms, on_answer)

    def _answered(self, client_id: str, answer: RemotingCommand | None) -> None:
        self._left_count -= 1
        if answer is not None and answer.code == ResponseCode.SUCCESS and answer.body:
            try:
                status = admin_bodies.GetConsumerStatusBody.decode(answer.body)
                self._table[client_id] = status.message_queue_table or {}
            except RemotingBodyError as error:
                log.warning("status that cannot be read client=%s: %s", client_id, error)
        if self._left_count == 0:
            body = admin_bodies.GetConsumerStatusBody(consumer_table=self._table, message_queue_table={})
            self._request.answer(body=body)


def _connections(infos: Iterable[ClientChannelInfo]) -> list[admin_bodies.Connection]:
    return [
        admin_bodies.Connection(
            client_id=info.client_id,
            client_addr=info.channel.remote_address,
            language=info.language,
            version=info.version,
        )
        for info in infos
    ]


def shown_subscription(data: SubscriptionData) -> bodies.SubscriptionData:
    """As tools get it."""
    return bodies.SubscriptionData(
        topic=data.topic,
        sub_string=data.sub_string,
        tags_set=sorted(data.tags_set),
        code_set=sorted(data.code_set),
        sub_version=data.sub_version,
        expression_type=data.expression_type,
        class_filter_mode=data.class_filter_mode,
    )
