"""Questions to producers how a transaction ends: CHECK_TRANSACTION_STATE (39)."""

from __future__ import annotations

from broker.clients.client_channel import ClientChannelInfo
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
        return bool(self._channels_of(group, 0))

    def ask(self, half: HalfMessage, check_times: int) -> bool:
        turn = half.queue_offset + check_times
        infos = self._channels_of(half.group, turn) if half.group else []
        # Who names the group of another is not given that one's messages.
        channel = next((info.channel for info in infos if info.may_publish(half.real_topic)), None)
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

    def _channels_of(self, group: str, turn: int) -> list[ClientChannelInfo]:
        """Those of the group that take what is written, each the first in its turn."""
        infos = list(self._producers.groups.get(group, {}).values())
        start = turn % max(len(infos), 1)
        return [
            info
            for info in (*infos[start:], *infos[:start])
            if info.channel.is_open and not info.channel.paused
        ]


def _checked_record(half: HalfMessage, check_times: int) -> bytes:
    """The half as its producer sent it: of its own topic and queue. It still says where it lies."""
    properties = raw_properties(half.record)
    counted = with_properties(properties, {const.TRANSACTION_CHECK_TIMES: str(check_times)})
    if len(counted) <= PROPERTIES_LENGTH_MAX:
        properties = counted
    return encode_again(half.message, half.real_topic.encode(), half.real_queue_id, properties)
