"""The options of messages over the wire, with the names that Spark's Kafka source gave them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, NamedTuple

import pyarrow as pa

from message.errors import SubscriptionParseError
from message.names import TOOLS_CONSUMER_GROUP, group_fault, topic_fault
from message.tags import EXPRESSION_TYPE_SQL92, EXPRESSION_TYPE_TAG, SUB_ALL, build_subscription
from pyspark_dledger.option_values import OptionError, choice, listed, number
from pyspark_dledger.schema import BODY, CORRUPT, check_names, ddl
from pyspark_dledger.wire.body_format import (
    BodyFormat,
    body_format,
    body_sql_type,
    format_name,
    known_columns,
)
from pyspark_dledger.wire.common_options import (
    ACCESS_OPTIONS,
    OF_STREAMS,
    POLL_TIMEOUT_MS,
    cluster_access,
    known_options,
    trigger_limits,
)
from pyspark_dledger.wire.planning import TaskSizes, TriggerLimits
from pyspark_dledger.wire.pull_options import PullOptions
from pyspark_dledger.wire.queue_range import Queue, QueueJsonError, queues_from_json

OPTIONS: Final = (
    *ACCESS_OPTIONS, "view", "subscribe", "subscribePattern", "assign",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    *OF_STREAMS, "minPartitions", "maxRecordsPerPartition",
    "failOnDataLoss", "pollTimeoutMs", "consumerGroup", "tags", "sql", "columns", "body",
    "bodyFormat", "bodySchema",
)  # fmt: skip
_OF_BATCHES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
# In a table of offsets: the first message that there is, and the place behind the last one.
EARLIEST: Final = -2
LATEST: Final = -1


class PlaceKind(Enum):
    EARLIEST = auto()
    LATEST = auto()
    OFFSET = auto()
    TIME = auto()  # the first message that is not older


class Place(NamedTuple):
    kind: PlaceKind
    value: int = 0  # the offset, or ms since 1970


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a read begins or ends in each queue."""

    otherwise: Place  # in queues that are not named
    named: Mapping[Queue, Place] = field(default_factory=dict)

    def of(self, queue: Queue) -> Place:
        return self.named.get(queue, self.otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which queues: all of some topics, or of those whose whole names match, or these. One of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    queues: tuple[Queue, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageOptions:
    pull: PullOptions
    subscription: Subscription
    columns: tuple[str, ...]
    inflate: bool
    body: BodyFormat
    starting: Bound
    ending: Bound
    # A time after the last message has no offset: the end stands for it, or it is an error.
    late_time_is_latest: bool
    limits: TriggerLimits
    sizes: TaskSizes


def message_ddl(options: Mapping[str, str]) -> str:
    """The table that these options ask for, as Spark reads it. Raises OptionError and SchemaError."""
    given = known_options(options, OPTIONS, (), is_stream=False)
    known = known_columns(format_name(given))
    names = check_names(listed(given["columns"]), known) if "columns" in given else known
    return ddl(names, body_sql_type(given))


def message_options(
    options: Mapping[str, str],
    columns: Sequence[str],
    body_type: pa.DataType | None = None,
    *,
    is_stream: bool,
) -> MessageOptions:
    """Of the options as Spark hands them over. `body_type`: of the column `body` in its schema.

    Raises OptionError and SchemaError.
    """
    given = known_options(options, OPTIONS, _OF_BATCHES if is_stream else OF_STREAMS, is_stream=is_stream)
    if CORRUPT.name in columns and BODY.name not in columns:
        raise OptionError(f"column {CORRUPT.name} has what column {BODY.name} cannot: ask for both")
    strategy = choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest"))
    return MessageOptions(
        pull=_pull_options(given),
        subscription=_subscription(given),
        columns=check_names(columns, known_columns(format_name(given))),
        inflate=choice(given, "body", ("inflated", "stored")) == "inflated",
        body=body_format(given, body_type),
        starting=_bound(given, "starting", Place(PlaceKind.LATEST if is_stream else PlaceKind.EARLIEST)),
        ending=_bound(given, "ending", Place(PlaceKind.LATEST)),
        late_time_is_latest=strategy == "latest",
        limits=trigger_limits(given),
        sizes=TaskSizes(
            number(given, "minPartitions", at_least=1), number(given, "maxRecordsPerPartition", at_least=1)
        ),
    )


def _pull_options(given: Mapping[str, str]) -> PullOptions:
    group = given.get("consumerGroup", TOOLS_CONSUMER_GROUP)
    if fault := group_fault(group):
        raise OptionError(f"option consumerGroup={group!r}: {fault}")
    if "tags" in given and "sql" in given:
        raise OptionError("options tags and sql are both given: one filter is possible")
    expression, expression_type = given.get("tags", SUB_ALL).strip(), EXPRESSION_TYPE_TAG
    if "sql" in given:
        expression, expression_type = given["sql"].strip(), EXPRESSION_TYPE_SQL92
    try:
        build_subscription("", expression, expression_type)
    except SubscriptionParseError as error:
        raise OptionError(f"the filter {expression!r} cannot be read: {error}") from None
    if not expression:
        raise OptionError("option tags is empty: write tags as `A || B`, or leave it out for all messages")
    return PullOptions(
        cluster=cluster_access(given),
        consumer_group=group,
        expression=expression,
        expression_type=expression_type,
        timeout_ms=number(given, "pollTimeoutMs", at_least=1) or POLL_TIMEOUT_MS,
        fail_on_data_loss=choice(given, "failOnDataLoss", ("true", "false")) == "true",
    )


def _subscription(given: Mapping[str, str]) -> Subscription:
    said = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(said) != 1:
        found = " and ".join(said) or "none"
        raise OptionError(
            f"one of subscribe, subscribePattern and assign says what is read: {found} is given"
        )
    text = given[said[0]]
    if said == ["subscribePattern"]:
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"option subscribePattern={text!r}: {error}") from None
        return Subscription(pattern=text)
    if said == ["assign"]:
        return Subscription(queues=_assigned(text))
    topics = tuple(dict.fromkeys(listed(text)))
    if not topics:
        raise OptionError("option subscribe is empty: write names of topics, joined by commas")
    for topic in topics:
        if fault := topic_fault(topic):
            raise OptionError(f"option subscribe: {fault}")
    return Subscription(topics=topics)


def _assigned(text: str) -> tuple[Queue, ...]:
    form = 'write {"topic": {"broker": [0, 1]}}'
    value = _json("assign", text)
    try:
        queues = tuple(
            Queue(topic, broker, queue_id)
            for topic, brokers in value.items()
            for broker, queue_ids in brokers.items()
            for queue_id in queue_ids
        )
    except (AttributeError, TypeError):
        raise OptionError(f"option assign={text!r} names no queues: {form}") from None
    if not queues or not all(type(queue.queue_id) is int and queue.queue_id >= 0 for queue in queues):
        raise OptionError(f"option assign={text!r} names no queues: {form}")
    return tuple(sorted(set(queues)))


def _bound(given: Mapping[str, str], side: str, default: Place) -> Bound:
    """As Kafka's source: a time for all queues, else times of queues, else offsets."""
    if (name := f"{side}Timestamp") in given:
        return Bound(Place(PlaceKind.TIME, number(given, name, at_least=0) or 0))
    if (name := f"{side}OffsetsByTimestamp") in given:
        times = _queue_numbers(name, given[name], at_least=0)
        return Bound(default, {queue: Place(PlaceKind.TIME, time) for queue, time in times.items()})
    name = f"{side}Offsets"
    text = given.get(name, "").strip()
    words = {"earliest": Place(PlaceKind.EARLIEST), "latest": Place(PlaceKind.LATEST)}
    if not text:
        return Bound(default)
    if text.lower() in words:
        place = words[text.lower()]
        if side == "ending" and place.kind is PlaceKind.EARLIEST:
            raise OptionError("option endingOffsets=earliest: nothing would be read")
        return Bound(place)
    special = {LATEST: words["latest"]} | ({EARLIEST: words["earliest"]} if side == "starting" else {})
    offsets = _queue_numbers(name, text, at_least=min(special))
    return Bound(
        default, {queue: special.get(at, Place(PlaceKind.OFFSET, at)) for queue, at in offsets.items()}
    )


def _queue_numbers(name: str, text: str, *, at_least: int) -> dict[Queue, int]:
    try:
        numbers = queues_from_json(_json(name, text))
    except QueueJsonError as error:
        raise OptionError(f"option {name}: {error}") from None
    for queue, value in numbers.items():
        if value < at_least:
            raise OptionError(f"option {name}: {queue}: {value} is below {at_least}")
    return numbers


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {name}={text!r} is no JSON: {error}") from None
