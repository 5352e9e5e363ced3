"""The options of entries over the wire. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark_dledger.option_values import OptionError, choice, listed, number
from pyspark_dledger.schema import WIRE_ENTRY_COLUMN_NAMES, check_names
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.common_options import (
    ACCESS_OPTIONS,
    OF_STREAMS,
    POLL_TIMEOUT_MS,
    cluster_access,
    known_options,
    trigger_limits,
)
from pyspark_dledger.wire.planning import TaskSizes, TriggerLimits

OPTIONS: Final = (
    *ACCESS_OPTIONS, "view", "brokers", "readFrom", "startingOffsets", *OF_STREAMS, "minPartitions",
    "maxRecordsPerPartition", "topic", "columns", "body", "pollTimeoutMs",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    """What a worker has to know to read the log of any group."""

    cluster: ClusterAccess
    timeout_ms: int
    followers_first: bool  # the leader has enough to do


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryOptions:
    log: LogOptions
    brokers: tuple[str, ...]  # none: all that there are
    columns: tuple[str, ...]
    topic: str | None
    inflate: bool
    begins_at_end: bool
    limits: TriggerLimits
    sizes: TaskSizes


def entry_options(options: Mapping[str, str], columns: Sequence[str], *, is_stream: bool) -> EntryOptions:
    """Of the options as Spark hands them over. Raises OptionError and SchemaError."""
    given = known_options(options, OPTIONS, () if is_stream else OF_STREAMS, is_stream=is_stream)
    words = ("latest", "earliest") if is_stream else ("earliest", "latest")
    if "brokers" in given and not listed(given["brokers"]):
        raise OptionError(
            "option brokers is empty: write names of brokers, joined by commas, or leave it out for all"
        )
    return EntryOptions(
        log=LogOptions(
            cluster=cluster_access(given),
            timeout_ms=number(given, "pollTimeoutMs", at_least=1) or POLL_TIMEOUT_MS,
            followers_first=choice(given, "readFrom", ("leader", "follower")) == "follower",
        ),
        brokers=tuple(dict.fromkeys(listed(given.get("brokers", "")))),
        columns=check_names(columns, WIRE_ENTRY_COLUMN_NAMES),
        topic=given.get("topic"),
        inflate=choice(given, "body", ("stored", "inflated")) == "inflated",
        begins_at_end=choice(given, "startingOffsets", words) == "latest",
        limits=trigger_limits(given),
        sizes=TaskSizes(
            number(given, "minPartitions", at_least=1), number(given, "maxRecordsPerPartition", at_least=1)
        ),
    )
