"""What a pop consumer acknowledges a message by, and how the answer to a pop tells it: RocketMQ's ExtraInfoUtil."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from message.names import RETRY_GROUP_TOPIC_PREFIX, pop_retry_topic

# In the place of a revive queue: the message was popped by FIFO consumers.
ORDER_REVIVE_QUEUE: Final = 999
_NUMBER_MAX: Final = (1 << 63) - 1


class PopHandle(NamedTuple):
    """Its words are joined with blanks. Older clients leave out the last one."""

    start: int  # where the pop began in the queue
    pop_time: int  # ms
    invisible_ms: int
    revive_queue_id: int
    retry: str  # see retry_mark()
    broker_name: str
    queue_id: int
    queue_offset: int | None = None  # of the message

    @property
    def is_order(self) -> bool:
        return self.revive_queue_id == ORDER_REVIVE_QUEUE

    def encode(self) -> str:
        return " ".join(str(word) for word in self if word is not None)

    @classmethod
    def decode(cls, text: str) -> PopHandle:
        """Raises ValueError for what is none."""
        words = text.split(" ")
        if not 7 <= len(words) <= 8:
            raise ValueError(f"{text!r:.80} has {len(words)} words, a handle has 8")
        start, pop_time, invisible_ms, revive_queue_id = map(_number, words[:4])
        queue_offset = _number(words[7]) if len(words) == 8 else None
        return cls(
            start,
            pop_time,
            invisible_ms,
            revive_queue_id,
            words[4],
            words[5],
            _number(words[6]),
            queue_offset,
        )


def _number(word: str) -> int:
    if not word.isascii() or not word.isdigit() or len(word) > 19 or int(word) > _NUMBER_MAX:
        raise ValueError(f"{word!r:.40} is no number of a handle")
    return int(word)


def retry_mark(topic: str) -> str:
    """Which form of a retry topic it is: 0 for none, 1 for %RETRY%<group>_<topic>, 2 for %RETRY%<group>+<topic>."""
    if not topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return "0"
    return "2" if "+" in topic else "1"


def topic_of_mark(topic: str, group: str, mark: str) -> str:
    """The topic that a message lies in, which its consumer knows as `topic`."""
    return topic if mark not in ("1", "2") else pop_retry_topic(group, topic, v2=mark == "2")


def start_offset_info(starts: Mapping[tuple[str, int], int]) -> str:
    """`starts`: by topic and queue id."""
    return ";".join(f"{retry_mark(topic)} {queue_id} {start}" for (topic, queue_id), start in starts.items())


def msg_offset_info(offsets: Mapping[tuple[str, int], Sequence[int]]) -> str:
    """`offsets`: of the messages, by topic and queue id."""
    return ";".join(
        f"{retry_mark(topic)} {queue_id} {','.join(map(str, found))}"
        for (topic, queue_id), found in offsets.items()
    )


def order_count_info(counts: Mapping[tuple[str, int], Mapping[int, int]]) -> str:
    """`counts`: how often each message was popped before, by its offset, by topic and queue id. For clients that do
    not know single messages, the smallest of them is the queue's.
    """
    words = []
    for (topic, queue_id), of_queue in counts.items():
        mark = retry_mark(topic)
        words += [f"{mark} qo{queue_id}%{offset} {count}" for offset, count in of_queue.items() if count]
        words.append(f"{mark} {queue_id} {min(of_queue.values(), default=0)}")
    return ";".join(words)
