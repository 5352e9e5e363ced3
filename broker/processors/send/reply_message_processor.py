"""Replies to requests: SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325).

A reply is pushed to its requester (PUSH_REPLY_MESSAGE_TO_CLIENT, 326), a client of a producer group that this broker
knows by its heartbeats. With storeReplyMessageEnable it is stored as well, at the same time. A requester that is not
connected is waited for, up to the request's TTL and pyDLedgerMaxReplyWaitMs, by the next leader too if the reply is
stored. The replier is answered when all that has ended: SUCCESS only if the requester has taken the reply.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from broker.answers import AnyRequest
from broker.clients.client_channel import ClientChannel
from broker.clients.client_requests import ClientRequests
from broker.clients.producer_manager import ProducerManager
from broker.config.broker_config import BrokerConfig
from broker.processors.send.send_batch import CLIENT_SYS_FLAGS, SendRefused, illegal
from broker.processors.send.send_target import check_topic_name, queue_of, sending_forbidden, topic_missing
from broker.processors.send.stored_replies import StoredReplies
from broker.topics.topic_config_manager import TopicConfigManager, TopicEntry
from broker.waiting.waiting_replies import WaitEnd, WaitingReplies, WaitingReply
from message import const
from message.decoder import MessageExt
from message.message_id import pack_host
from message.names import AUTO_CREATE_TOPIC_KEY_TOPIC, reply_topic
from message.properties import PROPERTIES_LENGTH_MAX, decode_properties, encode_properties, ttl_ms_of
from message.sys_flag import BORNHOST_V6_FLAG
from message.tags import tags_code
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand
from remoting.headers import headers
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

PUSH_TIMEOUT_MS = 10_000
# What a reply that waits costs beside its body and properties.
WAITING_REPLY_OVERHEAD = 1024


class _Reply(msgspec.Struct, eq=False):
    """One reply on its two ways, to its requester and into the log. It is answered when both have ended."""

    request: AnyRequest | None  # None: read from the log, and nobody is to be answered
    push: headers.ReplyMessageRequestHeader
    body: bytes
    client_id: str  # of the requester
    wait_ms: int  # 0: it does not wait
    until_ms: int
    answer_fields: dict[str, str]
    is_put: bool = False  # it is in the log, or will be, as far as anybody knows
    is_put_under_way: bool = False
    pushed: tuple[int, str | None] | None = None  # code and remark of the answer; None: under way, or waiting


class ReplyMessageProcessor:
    """Invariant: each reply that is not oneway gets one answer."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        producers: ProducerManager,
        client_requests: ClientRequests,
        waiting: WaitingReplies,
        clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self.config = config
        self._store = store
        self._topics = topics
        self._producers = producers
        self._client_requests = client_requests
        self._waiting = waiting
        self._clock = clock
        self._random = rng
        trace_on = "true" if config.trace_on else "false"
        self._common_fields = {"MSG_REGION": config.region_id, "TRACE_ON": trace_on}
        self._properties_tail = f"MSG_REGION\x01{config.region_id}\x02TRACE_ON\x01{trace_on}\x02"
        self._message_id_prefix = pack_host(config.store_host).hex().upper()
        self._stored_replies = StoredReplies(store, reply_topic(config.broker_cluster_name))

    @property
    def has_work(self) -> bool:
        return self._stored_replies.has_work

    def serving_changed(self, is_serving: bool, now_ms: int) -> None:
        if is_serving:
            self._stored_replies.begin(now_ms - self.config.max_reply_wait_ms)
        else:
            self._stored_replies.stop()

    def tick(self, now_ms: int) -> None:
        """Goes on with what the log has of the leader before."""
        if self._stored_replies.has_work:
            for message in self._stored_replies.read():
                self._take_up(message, now_ms)

    def send_reply(self, request: AnyRequest, now_ms: int) -> None:
        """Its header is the same as that of a send, in the form that goes with the code."""
        header: headers.SendMessageHeader = request.header
        try:
            self._check(header, request.body, now_ms)
            entry = self._topics.entry(header.topic)
            is_new = entry is None
            if entry is None:
                entry = self._entry_to_create(header)
            elif self._topics.is_forbidden(entry.config):
                raise sending_forbidden(self.config.broker_ip1)
            queue_id = queue_of(entry, header.queue_id, request.channel.remote_address, self._random)
            reply = self._read(request, header, queue_id, now_ms)
            is_serving = self._store.serving
            if not is_serving and (is_new or self._producers.channel_of(reply.client_id) is None):
                remark = "this member does not lead, nor is the requester connected to it"
                raise SendRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"service not available now: {remark}")
        except SendRefused as refused:
            request.answer(refused.code, refused.remark, self._common_fields)
            return
        if is_new:
            self._topics.create(entry.config, partial(self._topic_created, request), now_ms)
            return
        if is_serving and self.config.store_reply_message_enable:
            self._put(reply, request, entry, queue_id, now_ms)
        self._push_or_wait(reply, now_ms)

    def _check(self, header: headers.SendMessageHeader, body: bytes | memoryview, now_ms: int) -> None:
        """Raises SendRefused."""
        config = self.config
        if now_ms < config.start_accept_send_request_timestamp:
            remark = (
                f"broker unable to service, until {config.start_accept_send_request_timestamp} ms since 1970"
            )
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        check_topic_name(header.topic)
        if len(body) > config.store.max_message_size:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, illegal(config.store.max_message_size))

    def _entry_to_create(self, header: headers.SendMessageHeader) -> TopicEntry:
        """What the topic will be. Raises SendRefused where no reply may make it."""
        config = self._topics.config_from_template(
            header.topic, header.default_topic, header.default_topic_queue_nums
        )
        if config is None:
            raise topic_missing(header.topic)
        return TopicEntry(config, header.topic.encode(), config.write_queue_nums)

    def _topic_created(self, request: AnyRequest, is_created: bool) -> None:
        if is_created:
            self.send_reply(request, self._clock())
        else:
            remark = f"topic[{request.header.topic}] could not be created: this member stopped leading"
            request.answer(ResponseCode.SERVICE_NOT_AVAILABLE, remark, self._common_fields)

    def _read(
        self, request: AnyRequest, header: headers.SendMessageHeader, queue_id: int, now_ms: int
    ) -> _Reply:
        """Raises SendRefused for a reply that names no requester."""
        text = header.properties or ""
        properties = decode_properties(text.encode())
        client_id = properties.get(const.MESSAGE_REPLY_TO_CLIENT, "")
        if not client_id:
            remark = f"reply message properties[{const.MESSAGE_REPLY_TO_CLIENT}] is null"
            raise SendRefused(ResponseCode.SYSTEM_ERROR, remark)
        if text and text[-1] != "\x02":
            text += "\x02"
        wait_ms = self._wait_ms(properties)
        push = headers.ReplyMessageRequestHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=text + self._properties_tail,
            reconsume_times=header.reconsume_times,
            unit_mode=bool(header.unit_mode),
            born_host=request.channel.remote_address,
            store_host=self.config.store_host,
            store_timestamp=now_ms,
        )
        # Java's ids of what was not stored; its clients cannot read an answer without any.
        answer_fields = {**self._common_fields, "msgId": "0", "queueId": str(queue_id), "queueOffset": "0"}
        return _Reply(request, push, bytes(request.body), client_id, wait_ms, now_ms + wait_ms, answer_fields)

    def _take_up(self, message: MessageExt, now_ms: int) -> None:
        wait_ms = self._wait_ms(message.properties)
        client_id = message.properties.get(const.MESSAGE_REPLY_TO_CLIENT, "")
        until_ms = message.store_timestamp + wait_ms
        if not client_id or until_ms <= now_ms:
            return
        push = headers.ReplyMessageRequestHeader(
            producer_group="",
            topic=message.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=1,
            queue_id=message.queue_id,
            sys_flag=message.sys_flag & CLIENT_SYS_FLAGS,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=encode_properties(message.properties).decode(),
            reconsume_times=message.reconsume_times,
            born_host=message.born_host,
            store_host=message.store_host,
            store_timestamp=message.store_timestamp,
        )
        self._push_or_wait(
            _Reply(None, push, message.body, client_id, wait_ms, until_ms, {}, is_put=True), now_ms
        )

    def _wait_ms(self, properties: Mapping[str, str]) -> int:
        """How long the reply waits for its requester: no client that lives stays away for longer than the limit."""
        return min(ttl_ms_of(properties) or 0, self.config.max_reply_wait_ms)

    # -- into the log

    def _put(
        self,
        reply: _Reply,
        request: AnyRequest,
        entry: TopicEntry,
        queue_id: int,
        now_ms: int,
    ) -> None:
        header: headers.SendMessageHeader = request.header
        properties = (reply.push.properties or "").encode()
        if not reply.body or len(properties) > PROPERTIES_LENGTH_MAX or entry.is_batch:
            log.warning(
                "reply not stored topic=%s body=%d properties=%d",
                header.topic,
                len(reply.body),
                len(properties),
            )
            return
        tags = decode_properties(properties).get(const.TAGS, "")
        born_host = pack_host(request.channel.remote_address)
        put = PutMessage(
            entry.topic_bytes,
            queue_id,
            reply.body,
            properties,
            tags_code(tags) if tags else 0,
            header.born_timestamp,
            born_host,
            header.flag,
            header.sys_flag & CLIENT_SYS_FLAGS | (BORNHOST_V6_FLAG if len(born_host) == 20 else 0),
            header.reconsume_times or 0,
        )
        reply.is_put = reply.is_put_under_way = True
        self._store.gather.add(request.channel, [put], [reply], (), self._put_ended, now_ms)

    def _put_ended(
        self, channel: ClientChannel, replies: list[_Reply], outcome: PutBatch | PutRefusal, first: int
    ) -> None:
        for index, reply in enumerate(replies, first):
            if isinstance(outcome, PutRefusal):
                reply.is_put = outcome.status is PutStatus.UNKNOWN
                log.warning("reply not stored topic=%s: %s", reply.push.topic, outcome.text)
            else:
                phy_offset, queue_offset = outcome.results[index]
                reply.answer_fields["msgId"] = f"{self._message_id_prefix}{phy_offset:016X}"
                reply.answer_fields["queueOffset"] = str(queue_offset)
            reply.is_put_under_way = False
            self._answer_if_ended(reply)

    # -- to the requester

    def _push_or_wait(self, reply: _Reply, now_ms: int) -> None:
        client_id = reply.client_id
        channel = self._producers.channel_of(client_id)
        if channel is not None:
            push = msgspec.structs.replace(
                reply.push, properties=f"{const.PUSH_REPLY_TIME}\x01{now_ms}\x02{reply.push.properties}"
            )
            self._client_requests.call(
                channel,
                RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
                headers.to_ext_fields(push),
                reply.body,
                now_ms + PUSH_TIMEOUT_MS,
                partial(self._client_answered, reply),
            )
        elif reply.until_ms <= now_ms:
            self._push_ended(reply, ResponseCode.SYSTEM_ERROR, _not_found(client_id))
        else:
            size = len(reply.body) + len(reply.push.properties or "") + WAITING_REPLY_OVERHEAD
            on_end = partial(self._wait_ended, reply)
            refusal = self._waiting.hold(WaitingReply(client_id, reply.until_ms, size, on_end))
            if refusal is not None:
                self._push_ended(reply, ResponseCode.SYSTEM_ERROR, f"{_not_found(client_id)} {refusal}")

    def _wait_ended(self, reply: _Reply, end: WaitEnd, now_ms: int) -> None:
        if end is WaitEnd.REQUESTER_CAME:
            self._push_or_wait(reply, now_ms)
        elif end is WaitEnd.EXPIRED:
            limit_ms = self.config.max_reply_wait_ms
            limit = "the request's TTL" if reply.wait_ms < limit_ms else "pyDLedgerMaxReplyWaitMs"
            remark = f"{_not_found(reply.client_id)} It did not connect within {reply.wait_ms} ms, {limit}."
            self._push_ended(reply, ResponseCode.SYSTEM_ERROR, remark)
        elif reply.is_put:
            remark = "outcome unknown: this member stopped leading, and the next leader pushes what is stored"
            self._push_ended(reply, ResponseCode.SYSTEM_ERROR, remark)
        else:
            remark = f"this member stopped leading; the reply was not pushed to <{reply.client_id}>"
            self._push_ended(reply, ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    def _client_answered(self, reply: _Reply, answer: RemotingCommand | None) -> None:
        now_ms = self._clock()
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self._push_ended(reply, ResponseCode.SUCCESS, None)
        elif answer is None and now_ms < reply.until_ms and self._store.serving:
            # Its connection ended, or hangs. If it has taken the reply all the same, it drops the second one.
            self._push_or_wait(reply, now_ms)
        else:
            log.warning(
                "reply not taken client=%s answer=%s",
                reply.client_id,
                "none" if answer is None else answer.remark,
            )
            remark = f"push reply message to {reply.client_id}fail."
            self._push_ended(reply, ResponseCode.SYSTEM_ERROR, remark)

    def _push_ended(self, reply: _Reply, code: int, remark: str | None) -> None:
        reply.pushed = (code, remark)
        self._answer_if_ended(reply)

    def _answer_if_ended(self, reply: _Reply) -> None:
        if reply.request is not None and reply.pushed is not None and not reply.is_put_under_way:
            reply.request.answer(*reply.pushed, reply.answer_fields)


def _not_found(client_id: str) -> str:
    return f"push reply message fail, channel of <{client_id}> not found."
