"""One message on its way: checked and encoded once, then sent as often as its attempts ask for, until it has an end."""

from __future__ import annotations

import math
from datetime import timedelta
from functools import lru_cache

from message import const
from message.compression import compress
from message.names import AUTO_CREATE_TOPIC_KEY_TOPIC, NOT_ALLOWED_SEND_TOPICS, topic_fault
from message.properties import PROPERTIES_LENGTH_MAX
from message.sys_flag import TRANSACTION_PREPARED_TYPE, CompressionType, compressed_by
from mqclient.errors import NOT_NOW_CODES, UNKNOWN_CODES, MessageIllegalError, SendError
from mqclient.message import Message
from mqclient.message_queue import MessageQueue
from mqclient.producer.queue_selector import QueueSelector, by_sharding_key
from mqclient.producer.send_result import SendResult, SendStatus
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.frame.command import RemotingCommand

STORED_CODES = frozenset(SendStatus)
RESERVED = frozenset(
    {
        const.KEYS,
        const.TAGS,
        const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX,
        const.WAIT_STORE_MSG_OK,
        const.SHARDING_KEY,
        const.DELAY_TIME_LEVEL,
    }
)
TIMERS = frozenset({const.TIMER_DELAY_SEC, const.TIMER_DELAY_MS, const.TIMER_DELIVER_MS})
SOME_UNIQ_KEY = "0" * 32  # all have this length
ZLIB_FLAGS = compressed_by(CompressionType.ZLIB)


class PendingSend:
    """`definite`: every attempt so far was surely not stored. `outcome` is None until the send has ended.

    `queue`: the last attempt's. If that attempt stored the message, it lies there at `queue_begin` or behind; None:
    nobody knows from where on. `is_doubted`: that attempt ended unknown, and nobody has looked yet.
    """

    __slots__ = (
        "attempts",
        "body",
        "born_timestamp",
        "definite",
        "is_doubted",
        "is_prepared",
        "is_routed",
        "message",
        "outcome",
        "properties",
        "queue",
        "queue_begin",
        "refusal",
        "refusal_code",
        "retry_times",
        "selector",
        "sys_flag",
        "uniq_key",
        "unknown_ends",
    )

    def __init__(
        self,
        message: Message,
        uniq_key: str,
        now_ms: int,
        *,
        selector: QueueSelector | None,
        compress_over: int,
        body_size_max: int,
        retry_times: int = 0,
        is_routed: bool,
    ) -> None:
        """`is_routed`: a queue is chosen from the route, anew for each attempt. Raises MessageIllegalError."""
        self.message = message
        self.is_routed = is_routed
        self.retry_times = retry_times
        self.uniq_key = uniq_key
        self.born_timestamp = str(now_ms)
        self.body = message.body
        self.sys_flag = "0"
        self.properties = _properties_text(message, uniq_key)
        self.selector = selector or (by_sharding_key if message.sharding_key else None)
        self.queue: MessageQueue | None = None
        self.queue_begin: int | None = None
        self.is_doubted = False
        # For a transaction. Prepared again, it would be a second one, which a check has committed as well.
        self.is_prepared = const.TRANSACTION_PREPARED in message.properties
        self.attempts = 0
        self.unknown_ends = 0
        self.definite = True
        self.refusal = ""
        self.refusal_code = -1
        self.outcome: SendResult | SendError | None = None
        fault = _topic_fault(message.topic)
        if fault is not None:
            raise MessageIllegalError(fault)
        if not isinstance(self.body, bytes):
            raise MessageIllegalError(f"the body is a {type(self.body).__name__}: encode it to bytes")
        if not 0 < len(self.body) <= body_size_max:
            raise MessageIllegalError(
                f"the body has {len(self.body)} bytes, allowed are 1 to {body_size_max}"
            )
        if len(self.body) > compress_over:
            compressed = compress(self.body)
            if len(compressed) < len(self.body):
                self.body = compressed
                self.sys_flag = str(ZLIB_FLAGS)
        if self.is_prepared:
            self.sys_flag = str(int(self.sys_flag) | TRANSACTION_PREPARED_TYPE)

    @property
    def is_delayed(self) -> bool:
        """It waits in another topic first, and the offset that its answer tells is one of that topic."""
        message = self.message
        return (
            self.is_prepared
            or bool(message.delay_level or message.delay)
            or message.deliver_at is not None
            or not TIMERS.isdisjoint(message.properties)
        )

    def ext_fields(self, group: str, queue: MessageQueue, default_topic_queue_nums: str) -> dict[str, str]:
        """Fields of SEND_MESSAGE_V2 (310), in the order in which Java's client has them."""
        return {
            "a": group,
            "b": queue.topic,
            "c": AUTO_CREATE_TOPIC_KEY_TOPIC,
            "d": default_topic_queue_nums,
            "e": str(queue.queue_id),
            "f": self.sys_flag,
            "g": self.born_timestamp,
            "h": str(self.message.flag),
            "i": self.properties,
            "j": "0",
            "k": "false",
            "m": "false",
            "n": queue.broker_name,
        }

    # -- ends of its attempts ----------------------------------------------------------------------------------

    def answered(self, answer: RemotingCommand, address: str) -> None:
        """An attempt has this answer from the broker at `address`."""
        self.attempts += 1
        code = answer.code
        if code in STORED_CODES:
            fields = answer.ext_fields
            queue = self.queue
            assert queue is not None, "it was sent there"
            try:
                self.outcome = SendResult(
                    SendStatus(code),
                    self.uniq_key,
                    fields["msgId"],
                    MessageQueue(queue.topic, queue.broker_name, int(fields["queueId"])),
                    int(fields["queueOffset"]),
                    self.attempts,
                    not self.definite,
                    fields.get("recallHandle", ""),
                )
            except (KeyError, ValueError):
                self.refusal = f"{address} answered a send with what cannot be read: {dict(fields)}"
                self._end_unknown()
            return
        self.refusal = f"{address} answered {code}: {answer.remark}"
        self.refusal_code = code
        if code in UNKNOWN_CODES:
            self._end_unknown()
        elif code not in NOT_NOW_CODES and not (self.is_routed and _is_illegal_queue(answer)):
            self.fail(self.refusal)

    def unanswered(self, error: RemotingError) -> None:
        """An attempt has no answer, for this reason."""
        self.refusal = str(error) or type(error).__name__
        if not error.definite:
            self.attempts += 1
            self._end_unknown()

    def _end_unknown(self) -> None:
        self.definite = False
        self.is_doubted = True
        self.unknown_ends += 1
        if self.unknown_ends > (0 if self.is_prepared else self.retry_times):
            self.fail(f"outcome unknown after {self.attempts} attempts; the last: {self.refusal}")

    def fail(self, text: str) -> None:
        self.outcome = SendError(
            text,
            definite=self.definite,
            retriable=self.refusal_code in NOT_NOW_CODES or self.refusal_code == -1,
            attempts=self.attempts,
            code=self.refusal_code,
        )


def check_properties(message: Message) -> None:
    """Raises MessageIllegalError for keys, tags and properties that no attempt could send."""
    _properties_text(message, SOME_UNIQ_KEY)


@lru_cache(maxsize=1024)
def _topic_fault(topic: str) -> str | None:
    fault = topic_fault(topic)
    if fault is None and topic in NOT_ALLOWED_SEND_TOPICS:
        fault = f"topic {topic} is the broker's own: nothing can be sent to it"
    return fault


def _properties_text(message: Message, uniq_key: str) -> str:
    """The order is Java's: keys, id, WAIT, tags, then the application's own."""
    pairs = []
    if message.keys:
        keys = message.keys if isinstance(message.keys, str) else " ".join(message.keys)
        pairs.append((const.KEYS, keys))
    pairs.append((const.UNIQ_CLIENT_MESSAGE_ID_KEYIDX, uniq_key))
    pairs.append((const.WAIT_STORE_MSG_OK, "true"))
    if message.tags:
        pairs.append((const.TAGS, message.tags))
    if message.delay_level:
        if message.delay_level < 0:
            raise MessageIllegalError(
                f"delay_level {message.delay_level}: levels are 1, 2, 3 …, and 0 is none"
            )
        pairs.append((const.DELAY_TIME_LEVEL, str(message.delay_level)))
    if message.delay or message.deliver_at is not None:
        pairs.append(_timer_pair(message))
    if message.sharding_key:
        pairs.append((const.SHARDING_KEY, message.sharding_key))
    if message.properties:
        if not RESERVED.isdisjoint(message.properties):
            raise MessageIllegalError(
                f"properties named {', '.join(sorted(RESERVED))} have fields of their own"
            )
        pairs += message.properties.items()
    text = "".join([f"{name}\x01{value}\x02" for name, value in pairs])
    if text.count("\x01") != len(pairs) or text.count("\x02") != len(pairs):
        raise MessageIllegalError(
            "a key, tag or property holds a character \\x01 or \\x02, which end names and values"
        )
    if _encoded_size(text) > PROPERTIES_LENGTH_MAX:
        raise MessageIllegalError(f"keys, tags and properties have more than {PROPERTIES_LENGTH_MAX} bytes")
    return text


def _timer_pair(message: Message) -> tuple[str, str]:
    """The time rounded up to ms: it is never early."""
    if (message.delay_level > 0) + bool(message.delay) + (message.deliver_at is not None) > 1:
        raise MessageIllegalError("delay_level, delay and deliver_at contradict each other: give one of them")
    if message.deliver_at is not None:
        return const.TIMER_DELIVER_MS, str(math.ceil(message.deliver_at.timestamp() * 1000))
    if message.delay < timedelta():
        raise MessageIllegalError(f"delay {message.delay} is negative")
    return const.TIMER_DELAY_MS, str(math.ceil(message.delay / timedelta(milliseconds=1)))


def _encoded_size(text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        # Halves of a pair, which come of files' names that are no UTF-8.
        raise MessageIllegalError(f"a key, tag or property cannot be UTF-8: {error.reason}") from None


def _is_illegal_queue(answer: RemotingCommand) -> bool:
    """Whether a broker says that the topic has no such queue: the route is older than the topic."""
    return answer.code == ResponseCode.INVALID_PARAMETER and (answer.remark or "").startswith(
        "request queueId["
    )
