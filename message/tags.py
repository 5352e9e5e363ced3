"""Tags: their hash in the ConsumeQueue, and the expressions by which consumers choose them."""

import struct
from functools import lru_cache
from typing import Final

import msgspec

from message.errors import SubscriptionParseError

SUB_ALL: Final = "*"
EXPRESSION_TYPE_TAG: Final = "TAG"
EXPRESSION_TYPE_SQL92: Final = "SQL92"
# RocketMQ has no limit. One expression must not hold up all else.
EXPRESSION_LENGTH_MAX: Final = 16_384  # characters


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 code units, a signed 32-bit int."""
    if text.isascii():
        units: tuple[int, ...] | bytes = text.encode("ascii")
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        units = struct.unpack(f">{len(encoded) // 2}H", encoded)
    value = 0
    for unit in units:
        value = value * 31 + unit & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


@lru_cache(maxsize=16384)
def tags_code(tags: str) -> int:
    """tagsCode of a message's whole TAGS property; 0 without tags."""
    return java_hash(tags)


@lru_cache(maxsize=16384)
def tags_code_of_bytes(tags: bytes) -> int:
    """The same for the property as it is stored."""
    return java_hash(tags.decode("utf-8", "replace"))


class SubscriptionData(msgspec.Struct, frozen=True):
    """What one consumer group wants of one topic."""

    topic: str
    sub_string: str
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    expression_type: str = EXPRESSION_TYPE_TAG
    sub_version: int = 0  # creation time, ms
    class_filter_mode: bool = False

    def matches(self, code: int) -> bool:
        """Whether a unit's tagsCode may be wanted. Hashes collide: the client compares the tags
        themselves."""
        return self.sub_string == SUB_ALL or code in self.code_set


def check_length(expression: str) -> None:
    """Raises SubscriptionParseError."""
    if len(expression) > EXPRESSION_LENGTH_MAX:
        raise SubscriptionParseError(
            f"the expression has {len(expression)} characters, the limit is {EXPRESSION_LENGTH_MAX}"
        )


def build_subscription(
    topic: str, expression: str | None, expression_type: str = EXPRESSION_TYPE_TAG, sub_version: int = 0
) -> SubscriptionData:
    """Reads `A || B`, `*` or nothing (all). SQL92 expressions are taken as they are. Raises SubscriptionParseError."""
    if expression:
        check_length(expression)
    if expression_type != EXPRESSION_TYPE_TAG:
        if not expression:
            raise SubscriptionParseError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(topic, expression, expression_type=expression_type, sub_version=sub_version)
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic, SUB_ALL, sub_version=sub_version)
    # Java's split drops empty strings at the end: an expression of nothing but `||` has no parts at all.
    if not expression.replace("||", ""):
        raise SubscriptionParseError("subString split error")
    tags = [tag for part in expression.split("||") if (tag := part.strip())]
    return SubscriptionData(
        topic,
        expression,
        tags_set=frozenset(tags),
        code_set=frozenset(map(java_hash, tags)),
        sub_version=sub_version,
    )
