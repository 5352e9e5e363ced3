"""RECALL_MESSAGE (370): a timer message that is not due yet is not to be delivered.

What is stored is a message of the timer topic, in the slot of the one that it recalls, as RocketMQ writes it. The
answer says that it is stored, and nothing of whether there is a message for it to recall.
"""

from __future__ import annotations

import random
from functools import partial
from typing import TYPE_CHECKING

from broker.answers import AnyRequest, Request
from broker.clients.client_channel import ClientChannel
from broker.config.broker_config import BrokerConfig
from broker.processors.send.send_batch import SendRefused
from broker.processors.send.timer_admission import TimerAdmission
from broker.topics.topic_config_manager import TopicConfigManager
from dledger.core.output import Role
from message import const
from message.errors import MessageEncodeError
from message.message_id import pack_host
from message.properties import encode_properties
from message.recall_handle import RecallHandle
from message.sys_flag import BORNHOST_V6_FLAG
from message.tags import tags_code
from remoting.codes import ResponseCode
from remoting.headers import headers
from store.put_message import PutBatch, PutMessage, PutRefusal

if TYPE_CHECKING:
    from store.message_store import MessageStore

_TAG = "_RECALL_TAG_"
_BODY = b"0"


class RecallMessageProcessor:
    def __init__(
        self, config: BrokerConfig, store: MessageStore, topics: TopicConfigManager, rng: random.Random
    ) -> None:
        self.config = config
        self._store = store
        self._topics = topics
        self._admission = TimerAdmission(config, store, rng)

    def recall(self, request: Request[headers.RecallMessageRequestHeader], now_ms: int) -> None:
        header = request.header
        answer = partial(request.answer, ext_fields={const.MSG_REGION: self.config.region_id})
        if not self.config.recall_message_enable:
            answer(ResponseCode.NO_PERMISSION, "recall failed, operation is forbidden")
            return
        if not self._store.serving:
            follows = self._store.role is Role.FOLLOWER
            code = ResponseCode.SLAVE_NOT_AVAILABLE if follows else ResponseCode.SERVICE_NOT_AVAILABLE
            answer(code, "recall failed, broker service not available")
            return
        if now_ms < self.config.start_accept_send_request_timestamp:
            answer(ResponseCode.SERVICE_NOT_AVAILABLE, "recall failed, broker service not available")
            return
        if self._topics.select(header.topic) is None:
            answer(ResponseCode.TOPIC_NOT_EXIST, f"recall failed, the topic[{header.topic}] not exist")
            return
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except ValueError:
            answer(ResponseCode.ILLEGAL_OPERATION, "recall handle is invalid")
            return
        if fault := self._fault_of(handle, header.topic, now_ms):
            answer(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {fault}")
            return
        try:
            put = self._admission.admit(self._record(request, handle, now_ms), handle.timestamp)
        except MessageEncodeError as error:
            answer(ResponseCode.ILLEGAL_OPERATION, f"recall failed, {error}")
            return
        except SendRefused as refused:
            answer(ResponseCode.SYSTEM_ERROR, f"recall failed, execute error: {refused.remark}")
            return
        self._store.gather.add(
            request.channel, [put], [request], (), partial(self._answer, handle.message_id), now_ms
        )

    def _fault_of(self, handle: RecallHandle, topic: str, now_ms: int) -> str | None:
        if handle.topic != topic:
            return "topic not match"
        if handle.broker_name != self.config.broker_name:
            return "broker service not available"
        if not 0 < handle.timestamp - now_ms < self.config.store.timer_max_delay_sec * 1000:
            return "timestamp invalid"
        return None

    def _record(
        self, request: Request[headers.RecallMessageRequestHeader], handle: RecallHandle, now_ms: int
    ) -> PutMessage:
        key = handle.message_id
        if self.config.store.append_topic_for_timer_delete_key:
            key = f"{handle.topic}+{key}"
        properties = {
            const.TIMER_DEL_UNIQKEY: key,
            const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX: handle.message_id,
            const.TIMER_DELIVER_MS: str(handle.timestamp),
            const.BORN_TIMESTAMP: str(now_ms),
            const.TRACE_CONTEXT: "",
            const.PRODUCER_GROUP: request.header.producer_group or "",
            const.TAGS: _TAG,
        }
        born_host = pack_host(request.channel.remote_address)
        return PutMessage(
            handle.topic.encode(),
            0,
            _BODY,
            encode_properties(properties),
            tags_code(_TAG),
            now_ms,
            born_host,
            sys_flag=BORNHOST_V6_FLAG if len(born_host) == 20 else 0,
        )

    def _answer(
        self,
        message_id: str,
        channel: ClientChannel,
        requests: list[AnyRequest],
        outcome: PutBatch | PutRefusal,
        first: int,
    ) -> None:
        fields = {const.MSG_REGION: self.config.region_id}
        for request in requests:
            if isinstance(outcome, PutRefusal):
                remark = f"recall failed, execute error: {outcome.status.value}: {outcome.text}"
                request.answer(ResponseCode.SYSTEM_ERROR, remark, fields)
            else:
                request.answer(ext_fields={**fields, "msgId": message_id})
