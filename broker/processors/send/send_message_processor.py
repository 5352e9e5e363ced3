"""Sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320).

The sends of one TCP read are handed to the store together, which gathers them with those of other connections
(store/put_gather.py); their answers are one write. A send for a topic that does not exist yet waits until its creation
is applied. What is refused consumes no queue offset.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from broker.clients.client_channel import ClientChannel
from broker.clients.rebalance_lock_manager import RebalanceLockManager
from broker.config.broker_config import BrokerConfig
from broker.processors.send.prepared_sends import PreparedSends
from broker.processors.send.send_batch import (
    CLIENT_SYS_FLAGS,
    NOT_FOR_BATCHES,
    SendRefused,
    batch_of,
    illegal,
    inner_batch_of,
)
from broker.processors.send.send_response import SendResponseEncoder
from broker.processors.send.send_target import (
    check_topic_name,
    queue_of,
    sending_forbidden,
    topic_missing,
)
from broker.processors.send.timer_admission import TimerAdmission
from broker.processors.send.unique_id import UniqueIdGenerator
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager, TopicEntry
from message.message_id import pack_host
from message.names import RETRY_GROUP_TOPIC_PREFIX, dlq_topic
from message.properties import PROPERTIES_LENGTH_MAX, decode_properties, delete_property, find_property
from message.sys_flag import BORNHOST_V6_FLAG, INNER_BATCH_FLAG
from message.tags import tags_code, tags_code_of_bytes
from remoting.codes import FAQ, RequestCode, ResponseCode
from remoting.errors import RemotingHeaderError
from remoting.frame.command import RemotingCommand, encode_response
from remoting.headers import headers
from store.put_message import PutBatch, PutMessage, PutRefusal, PutStatus
from store.services.delayed_message import delayed
from store.state.table_configs import TopicConfig

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

_BORN_HOST = "born_host"  # channel attribute
_ONEWAY = 2
_SEND_MESSAGE = RequestCode.SEND_MESSAGE.value
_SEND_BATCH_MESSAGE = RequestCode.SEND_BATCH_MESSAGE.value

# The long names of SEND_MESSAGE by the short ones of V2.
_SHORT_NAMES = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
}

_NOT_ALONE = (
    "topic[{topic}] has queue.type=BatchCQ: single messages are not supported yet, send batches (code 320)"
)
_REFUSAL_CODES = {
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.SYSTEM_BUSY: ResponseCode.SYSTEM_BUSY,
    PutStatus.UNKNOWN: ResponseCode.SYSTEM_ERROR,
}


# What the answer to one stored send needs, apart from where it was stored: opaque, serialize type, whether it is
# oneway, queue id, UNIQ_KEY, fields that few answers have, and how many records it became (more than one for a batch).
# One per message: no class.
_Reply = tuple[int, int, bool, str, str, dict[str, str] | None, int]
# What a message becomes that is not for its topic's consumers yet.
_Waiting = Callable[[PutMessage], PutMessage]


class SendMessageProcessor:
    """Invariant: each send that is not oneway gets exactly one answer, and SUCCESS only after a quorum holds it.

    An outcome that is unknown is answered SYSTEM_ERROR: clients count 10, 11 and 12 as stored.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        locks: RebalanceLockManager,
        clock: Callable[[], int],
        rng: random.Random,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._clock = clock
        self._random = rng
        self.prepared_sends = PreparedSends(config, store, topics)
        self._unique_ids = UniqueIdGenerator(config.store_ip, rng)
        self._broker_ip1 = config.broker_ip1
        self._max_message_size = config.store.max_message_size
        self._accepts_from_ms = config.start_accept_send_request_timestamp
        self._delay_level_max = max(store.config.delay_levels)
        trace_on = "true" if config.trace_on else "false"
        self._common_fields = {"MSG_REGION": config.region_id, "TRACE_ON": trace_on}
        self._responses = SendResponseEncoder(self._common_fields, pack_host(config.store_host).hex().upper())
        # Java writes these three into every message; the last pair of a name counts when they are read.
        self._properties_tail = (
            f"MSG_REGION\x01{config.region_id}\x02TRACE_ON\x01{trace_on}\x02CLUSTER\x01"
            f"{config.broker_cluster_name}\x02"
        ).encode()
        self._illegal = illegal(config.store.max_message_size)
        self._timers = TimerAdmission(config, store, rng)

    def process(self, channel: ClientChannel, commands: list[RemotingCommand], now_ms: int) -> None:
        """Answers each of `commands`, which are all sends, now or when its outcome is known. Changes the list."""
        if not self._store.serving:
            self._refuse_all(channel, commands, ResponseCode.SERVICE_NOT_AVAILABLE, self._not_serving())
            return
        if now_ms < self._accepts_from_ms:
            remark = f"broker unable to service, until {self._accepts_from_ms} ms since 1970"
            self._refuse_all(channel, commands, ResponseCode.SYSTEM_ERROR, remark)
            return
        born_host, born_flag = channel.attributes.get(_BORN_HOST) or self._born_host(channel)
        self.prepared_sends.coming_count = None
        puts: list[PutMessage] = []
        replies: list[_Reply] = []
        append_put, append_reply = puts.append, replies.append
        answers: list[bytes] = []
        entries = self._topics.entries
        tail = self._properties_tail
        body_max = self._max_message_size
        for number, command in enumerate(commands):
            fields = command.ext_fields
            code = command.code
            try:
                if code == _SEND_MESSAGE:
                    # Short names that it has as well mean nothing: its permission was asked for by the long ones.
                    fields = {
                        _SHORT_NAMES[name]: value for name, value in fields.items() if name in _SHORT_NAMES
                    }
                topic = fields["b"]
                entry = entries.get(topic)
                if entry is None:
                    found = self._find_topic(channel, command, topic, fields, now_ms)
                    if found is None:
                        continue  # held until the topic exists
                    entry, fields = found
                queue_text = fields["e"]
                queue_id = int(queue_text)
                if not 0 <= queue_id < entry.queue_limit:
                    queue_id = queue_of(entry, queue_id, channel.remote_address, self._random)
                    queue_text = str(queue_id)
                text = fields.get("i", "")
                at = text.find("UNIQ_KEY\x01")
                if at == 0 or (at > 0 and text[at - 1] == "\x02"):
                    end = text.find("\x02", at)
                    transaction_id = text[at + 9 : end] if end > 0 else text[at + 9 :]
                else:
                    transaction_id = self._unique_ids.next_id(now_ms)
                    text = f"UNIQ_KEY\x01{transaction_id}\x02{text}"
                at = text.rfind("TAGS\x01")
                if at < 0:
                    code_of_tags = 0
                elif at == 0 or text[at - 1] == "\x02":
                    end = text.find("\x02", at)
                    value = text[at + 5 : end] if end > 0 else text[at + 5 :]
                    # An empty value is no pair, and an earlier one of the name counts: followers read it so.
                    code_of_tags = tags_code(value or decode_properties(text.encode()).get("TAGS", ""))
                else:
                    code_of_tags = tags_code_of_bytes(find_property(text.encode(), b"TAGS") or b"")
                waiting: _Waiting | None = None
                more: dict[str, str] | None = None
                if (
                    "DELAY" in text
                    or "TIMER_D" in text
                    or "TRAN_MSG\x01" in text
                    or "POP_CK\x01" in text
                    or "INNER_NUM\x01" in text
                ):
                    text, waiting = self._check_properties(text, fields, code, now_ms)
                if (code == _SEND_BATCH_MESSAGE or fields.get("m", "false") != "false") and _is_batch(
                    code, fields
                ):
                    batch = batch_of(command, fields, entry, queue_id, born_host, born_flag, body_max)
                    if entry.is_batch:
                        properties = text.encode() + (tail if text[-1] == "\x02" else b"\x02" + tail)
                        batch = [inner_batch_of(batch, command, fields, properties, code_of_tags)]
                        more = {"batchUniqId": transaction_id}
                    puts += batch
                    count = len(batch)
                elif entry.is_batch:
                    raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, _NOT_ALONE.format(topic=topic))
                else:
                    count = 1
                    properties = text.encode() + (tail if text[-1] == "\x02" else b"\x02" + tail)
                    body = command.body
                    if not isinstance(body, bytes):
                        body = bytes(body)
                    if len(body) > body_max or len(properties) > PROPERTIES_LENGTH_MAX or not body:
                        raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, self._illegal)
                    put = PutMessage(
                        entry.topic_bytes,
                        queue_id,
                        body,
                        properties,
                        code_of_tags,
                        int(fields["g"]),
                        born_host,
                        int(fields["h"]),
                        int(fields["f"]) & CLIENT_SYS_FLAGS | born_flag,
                        int(fields.get("j", 0)),
                    )
                    if waiting is not None:
                        put = waiting(put)
                        more = self._timers.recall_fields(put)
                    append_put(put)
                append_reply(
                    (
                        command.opaque,
                        command.serialize_type,
                        command.flag & _ONEWAY != 0,
                        queue_text,
                        transaction_id,
                        more,
                        count,
                    )
                )
            except SendRefused as refused:
                self._add_refusal(answers, command, refused.code, refused.remark)
            except (KeyError, ValueError) as error:
                fault = _read_anew(command, error)
                if fault is None:
                    commands.insert(number + 1, command)  # once more, before what comes after it
                else:
                    self._add_refusal(answers, command, ResponseCode.SYSTEM_ERROR, fault)
        if answers:
            channel.write(b"".join(answers))
        if puts:
            counts = [reply[-1] for reply in replies] if len(puts) > len(replies) else ()
            self._store.gather.add(channel, puts, replies, counts, self._ended, now_ms)

    def _ended(
        self, channel: ClientChannel, replies: list[_Reply], outcome: PutBatch | PutRefusal, index: int
    ) -> None:
        """Answers sends that were stored, from the `index`th result on, or refused: one frame per message, one write
        per read.
        """
        if isinstance(outcome, PutRefusal):
            self._answer_refused(channel, replies, outcome)
            return
        results = outcome.results
        encode_json, encode_binary = self._responses.json, self._responses.binary
        frames: list[bytes] = []
        for opaque, serialize_type, is_oneway, queue_id, transaction_id, more, count in replies:
            phy_offset, queue_offset = results[index]
            if not is_oneway:
                if count > 1 or more is not None:
                    message_id = self._responses.message_id
                    fields = {
                        **self._common_fields,
                        "msgId": ",".join([message_id(pos) for pos, _ in results[index : index + count]]),
                        "queueId": queue_id,
                        "queueOffset": str(queue_offset),
                        "transactionId": transaction_id,
                        **(more or {}),
                    }
                    frames.append(encode_response(opaque, serialize_type, ResponseCode.SUCCESS, fields))
                else:
                    encode = encode_binary if serialize_type else encode_json
                    frames.append(encode(opaque, phy_offset, queue_id, queue_offset, transaction_id))
            index += count
        if frames:
            channel.write(b"".join(frames))

    def _answer_refused(self, channel: ClientChannel, replies: list[_Reply], refusal: PutRefusal) -> None:
        code, fields = _REFUSAL_CODES[refusal.status], self._common_fields
        answers = [
            encode_response(opaque, serialize_type, code, fields, remark=refusal.text)
            for opaque, serialize_type, is_oneway, *_ in replies
            if not is_oneway
        ]
        if answers:
            channel.write(b"".join(answers))

    def _add_refusal(self, answers: list[bytes], command: RemotingCommand, code: int, remark: str) -> None:
        if not command.flag & _ONEWAY:
            answers.append(
                encode_response(
                    command.opaque, command.serialize_type, code, self._common_fields, remark=remark
                )
            )

    def _refuse_all(
        self, channel: ClientChannel, commands: Sequence[RemotingCommand], code: int, remark: str
    ) -> None:
        answers: list[bytes] = []
        for command in commands:
            self._add_refusal(answers, command, code, remark)
        if answers:
            channel.write(b"".join(answers))

    def _not_serving(self) -> str:
        store = self._store
        return f"service not available now: this member is {store.role.value} in term {store.term}"

    def _find_topic(
        self,
        channel: ClientChannel,
        command: RemotingCommand,
        topic: str,
        fields: dict[str, str],
        now_ms: int,
    ) -> tuple[TopicEntry, dict[str, str]] | None:
        """Finds where a message for a topic goes that is not in the table of those that take every send, and its header
        then. Returns None where the send is held.
        """
        check_topic_name(topic)
        is_retry = topic.startswith(RETRY_GROUP_TOPIC_PREFIX)
        if is_retry:
            if _is_batch(command.code, fields):
                raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, NOT_FOR_BATCHES)
            fields = self._retry_fields(topic, fields, now_ms)
            topic = fields["b"]
        entry = self._topics.entry(topic)
        if entry is not None:
            if self._topics.is_forbidden(entry.config):
                raise sending_forbidden(self._broker_ip1)
            return entry, fields
        config: TopicConfig | None
        if is_retry:
            config = self._topics.retry_topic_config(topic)
        else:
            config = self._topics.config_from_template(topic, fields["c"], int(fields["d"]))
        if config is None:
            raise topic_missing(topic)
        self._check_before_creation(channel, command, fields, config, now_ms)

        def on_created(is_created: bool) -> None:
            if is_created:
                self.process(channel, [command], self._clock())
            else:
                self._refuse_all(
                    channel,
                    [command],
                    ResponseCode.SERVICE_NOT_AVAILABLE,
                    f"topic[{topic}] could not be created: this member stopped leading",
                )

        self._topics.create(config, on_created, now_ms)
        return None

    def _check_before_creation(
        self,
        channel: ClientChannel,
        command: RemotingCommand,
        fields: dict[str, str],
        config: TopicConfig,
        now_ms: int,
    ) -> None:
        """A send that will be refused once its topic exists must not leave the topic behind."""
        entry = TopicEntry(config, config.topic_name.encode(), config.write_queue_nums)
        queue_id = int(fields["e"])
        queue_id = queue_of(entry, queue_id, channel.remote_address, self._random)
        if int(fields["f"]) & INNER_BATCH_FLAG:
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {fields['f']}: the broker makes inner batches, of batch sends",
            )
        for number, bits in ((fields["g"], 64), (fields["h"], 32), (fields.get("j", 0), 32)):
            if not -(1 << bits - 1) <= int(number) < 1 << bits - 1:
                raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, f"{number} is no number of {bits} bits")
        text, waiting = self._check_properties(fields.get("i", ""), fields, command.code, now_ms)
        if _is_batch(command.code, fields):
            batch_of(command, fields, entry, 0, b"", 0, self._max_message_size)
            return
        properties = text.encode().removesuffix(b"\x02") + b"\x02" + self._properties_tail
        put = PutMessage(entry.topic_bytes, queue_id, b"", properties, 0, 0, b"", 0, 0)
        if waiting is not None:
            put = waiting(put)
        if not 0 < len(command.body) <= self._max_message_size or len(put.properties) > PROPERTIES_LENGTH_MAX:
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, self._illegal)

    def _retry_fields(self, topic: str, fields: dict[str, str], now_ms: int) -> dict[str, str]:
        """The header of a consumer's send to its retry topic: changed if it has tried often enough."""
        group = topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        config = self._groups.find(group, now_ms)
        if config is None:
            raise SendRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {group} {FAQ}"
            )
        times_max = int(fields.get("l") or config.retry_max_times)
        # A queue that is consumed in order would wait for the message to come back.
        if int(fields.get("j") or 0) <= times_max and not self._locks.is_locked(group, now_ms):
            return fields
        properties = delete_property(fields.get("i", "").encode(), b"DELAY").decode()
        return {**fields, "b": dlq_topic(group), "e": "0", "i": f"DELAY\x01-1\x02{properties}"}

    def _check_properties(
        self, text: str, fields: dict[str, str], code: int, now_ms: int
    ) -> tuple[str, _Waiting | None]:
        """Returns the text without a pop handle, and how the message waits, if it does. Raises SendRefused for what the
        broker does not do yet.
        """
        properties = decode_properties(text.encode())
        level = int(properties.get("DELAY", "0"))
        if level > 0 and _is_batch(code, fields):
            raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, "property DELAY: a batch cannot be delayed")
        is_retried = level > 0 and int(fields.get("j") or 0) > 0
        is_prepared = properties.get("TRAN_MSG", "").lower() == "true" and not is_retried
        if is_prepared and _is_batch(code, fields):
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL, "property TRAN_MSG: a batch cannot be a transaction"
            )
        if "INNER_NUM" in properties:
            raise SendRefused(
                ResponseCode.MESSAGE_ILLEGAL, "property INNER_NUM: the broker counts the messages of a batch"
            )
        waiting: _Waiting | None = None
        if is_prepared:
            deliver_ms = self._timers.deliver_ms(properties, now_ms)
            self.prepared_sends.check(now_ms)
            waiting = self.prepared_sends.prepared
            if deliver_ms is not None:
                waiting = self._prepared_with_a_time
        elif level > 0:
            waiting = partial(delayed, level=level, level_max=self._delay_level_max)
        elif (deliver_ms := self._timers.deliver_ms(properties, now_ms)) is not None:
            if _is_batch(code, fields):
                raise SendRefused(ResponseCode.MESSAGE_ILLEGAL, "property TIMER_*: a batch cannot be delayed")
            waiting = partial(self._timers.admit, deliver_ms=deliver_ms)
        return delete_property(text.encode(), b"POP_CK").decode(), waiting

    def _prepared_with_a_time(self, message: PutMessage) -> PutMessage:
        """Once it is committed, it waits for that."""
        return self._timers.check_room(self.prepared_sends.prepared(message), message.topic)

    def _born_host(self, channel: ClientChannel) -> tuple[bytes, int]:
        """The client's address packed, and the system flag that goes with it."""
        packed = pack_host(channel.remote_address)
        born_host = packed, BORNHOST_V6_FLAG if len(packed) == 20 else 0
        channel.attributes[_BORN_HOST] = born_host
        return born_host


def _read_anew(command: RemotingCommand, error: Exception) -> str | None:
    """Write the header's fields as Java does, where a client wrote them in another form; else say what is wrong."""
    try:
        plain = headers.to_ext_fields(headers.decode_send_message(command.code, command.ext_fields))
    except RemotingHeaderError as bad:
        return f"bad header field: {bad}"
    if plain == command.ext_fields:
        return f"bad header field: {error}"
    command.ext_fields = plain
    return None


def _is_batch(code: int, fields: dict[str, str]) -> bool:
    """By its header, as in Java, where any code may bring one; or by its code."""
    return code == _SEND_BATCH_MESSAGE or (
        fields.get("m", "false") != "false" and headers.is_true(fields, "m")
    )
