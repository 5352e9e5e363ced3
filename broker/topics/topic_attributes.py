"""Attributes of topics: which there are, what values they take, and what can be changed of a topic that exists."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from message.names import is_retry_or_dlq_topic

QUEUE_TYPE: Final = "queue.type"
BATCH_CQ: Final = "BatchCQ"
_INT64_MAX: Final = (1 << 63) - 1


def _one_of(*values: str) -> Callable[[str], str | None]:
    return lambda value: None if value in values else f"allowed are {', '.join(values)}"


def _reserve_time_fault(value: str) -> str | None:
    digits = value.removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) < 20
    return None if is_number and -1 <= int(value) <= _INT64_MAX else "a number of ms is allowed, or -1"


class _Attribute(NamedTuple):
    fault_of: Callable[[str], str | None]
    is_changeable: bool  # once the topic exists


_ATTRIBUTES: Final = {
    QUEUE_TYPE: _Attribute(_one_of("SimpleCQ", BATCH_CQ), False),
    "cleanup.policy": _Attribute(_one_of("DELETE", "COMPACTION"), False),
    "message.type": _Attribute(
        _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", "LITE", "PRIORITY"), True
    ),
    "reserve.time": _Attribute(_reserve_time_fault, True),
}


def attribute_changes_of(text: str) -> dict[str, str]:
    """`+key=value,-key` as RocketMQ reads it: {"+key": "value", "-key": ""}."""
    pieces = filter(None, (piece.strip() for piece in text.split(",")))
    return {name: value for name, _, value in (piece.partition("=") for piece in pieces)}


def altered_attributes(
    topic: str, known: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Attributes after {"+key": "value", "-key": ""}; `known` is None for a topic that is being made. Raises ValueError
    for a change that is not possible.
    """
    attributes = dict(known or {})
    for signed_name, value in changes.items():
        sign, name = signed_name[:1], signed_name[1:]
        attribute = _ATTRIBUTES.get(name)
        if attribute is None:
            raise ValueError(f"unsupported key: {name}")
        if known is None and sign == "-":
            raise ValueError(f"only add attribute is supported while creating topic. key: {name}")
        if known is not None and not attribute.is_changeable:
            raise ValueError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "+" and value:
            fault = attribute.fault_of(value)
            if fault is not None:
                raise ValueError(f"attribute {name}={value}: {fault}")
            attributes[name] = value
        elif sign == "-" and name in attributes:
            del attributes[name]
        elif sign == "-":
            raise ValueError(f"attempt to delete a nonexistent key: {name}")
        else:
            raise ValueError(f"attribute {signed_name}={value} is neither +key=value nor -key")
    if attributes.get(QUEUE_TYPE) == BATCH_CQ and is_retry_or_dlq_topic(topic):
        raise ValueError(f"attribute {QUEUE_TYPE}={BATCH_CQ}: the broker puts single messages into {topic}")
    return attributes
