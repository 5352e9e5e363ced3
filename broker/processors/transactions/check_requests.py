"""Questions to producers how a transaction ends: CHECK_TRANSACTION_STATE (39)."""

from __future__ import annotations

from broker.clients.client_channel import ClientChannel
from broker.clients.client_requests import ClientRequests
from broker.clients.producer_manager import ProducerManager
from message import const
from message.decoder import raw_properties
from message.encoder import encode_again
from message.names import TRANS_HALF_TOPIC
from message.properties import PROPERTIES_LENGTH_MAX, with_properties
from remoting.codes import RequestCode
from remoting.headers import headers
from store.services.half_message import HalfMessage


class CheckRequests:
    """store/services/transaction_checks.py decides when, this one whom and with which words."""

    def __init__(self, broker_name: str, producers: ProducerManager, client_requests: ClientRequests) -> None:
        self._broker_name = broker_name
        self._producers = producers
        self._client_requests = client_requests

    def has_producer(self, group: str) -> bool:
        return self._channel_of(group, 0) is not None

    def ask(self, half: HalfMessage, check_times: int) -> bool:
        turn = half.queue_offset + check_times
        channel = self._channel_of(half.group, turn) if half.group else None
        if channel is None:
            return False
        message = half.message
        key = message.uniq_key
        fields = headers.CheckTransactionStateRequestHeader(
            topic=TRANS_HALF_TOPIC,
            tran_state_table_offset=message.queue_offset,
            commit_log_offset=message.phy_offset,
            msg_id=key,
            transaction_id=key,
            offset_msg_id=message.msg_id,
            bname=self._broker_name,
        )
        self._client_requests.notify(
            channel,
            RequestCode.CHECK_TRANSACTION_STATE,
            headers.to_ext_fields(fields),
            _checked_record(half, check_times),
        )
        return True

    def _channel_of(self, group: str, turn: int) -> ClientChannel | None:
        """One of the group's that takes what is written, each in its turn."""
        infos = list(self._producers.groups.get(group, {}).values())
        start = turn % max(len(infos), 1)
        channels = [info.channel for info in (*infos[start:], *infos[:start])]
        return next((channel for channel in channels if channel.is_open and not channel.paused), None)


def _checked_record(half: HalfMessage, check_times: int) -> bytes:
    """The half as its producer sent it: of its own topic and queue. It still says where it lies."""
    properties = raw_properties(half.record)
    counted = with_properties(properties, {const.TRANSACTION_CHECK_TIMES: str(check_times)})
    if len(counted) <= PROPERTIES_LENGTH_MAX:
        properties = counted
    return encode_again(half.message, half.real_topic.encode(), half.real_queue_id, properties)
