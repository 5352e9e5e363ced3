"""What an Admin tells, as values. Times are milliseconds since the epoch (`…_ms`), None where there is none; lists come
sorted. How topics and groups are configured is told in the values that also change it (remoting's TopicConfig and
SubscriptionGroupConfig).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerMember:
    """One broker of a cluster. `id` 0 leads its group. What it says of itself is None when it does not answer."""

    cluster: str
    broker: str
    id: int
    address: str
    version: str | None
    in_tps: float | None
    out_tps: float | None
    disk_used: float | None  # of 1
    hours: float | None  # since the oldest message was stored
    active: bool


@dataclass(frozen=True, slots=True)
class DayCounts:
    """Messages that a broker took in and gave out."""

    cluster: str
    broker: str
    id: int
    in_yesterday: int
    out_yesterday: int
    in_today: int
    out_today: int


@dataclass(frozen=True, slots=True)
class TopicGroup:
    """A topic and one of the groups that read it, None for none."""

    cluster: str
    topic: str
    group: str | None


@dataclass(frozen=True, slots=True)
class TopicRouteRow:
    broker: str
    cluster: str
    leader: str | None
    followers: tuple[str, ...]
    read_queues: int
    write_queues: int
    perm: int


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """`min` is the first offset that is there, `max` the next one to be given."""

    broker: str
    queue: int
    min: int
    max: int
    last_updated_ms: int | None


@dataclass(frozen=True, slots=True)
class TopicStats:
    """Of a topic and one of its groups, None for a topic that nobody reads. Counts are of the last 24 hours."""

    topic: str
    group: str | None
    diff: int
    in_tps: float
    out_tps: float
    in_24h: int
    out_24h: int


@dataclass(frozen=True, slots=True)
class QueueProgress:
    """`diff` messages wait, `inflight` of them are with a consumer. `last_time_ms`: when the last message that was
    consumed had been stored. `client`: who reads the queue, None for nobody or where nobody asked.
    """

    topic: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    diff: int
    inflight: int
    last_time_ms: int | None
    client: str | None = None


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """`clients` are connected; `version`, `type` and `model` are theirs, None when there are none."""

    group: str
    clients: int
    version: int | None
    type: str | None
    model: str | None
    tps: float
    diff: int


@dataclass(frozen=True, slots=True)
class BrokerConsumeProgress:
    topic: str
    group: str
    broker: str
    queue: int
    broker_offset: int
    consumer_offset: int
    diff: int
    last_time_ms: int | None


@dataclass(frozen=True, slots=True)
class ClientConnection:
    client_id: str
    address: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class Subscription:
    topic: str
    expression: str
    type: str


@dataclass(frozen=True, slots=True)
class ConsumerConnections:
    clients: list[ClientConnection]
    subscriptions: list[Subscription]
    consume_type: str | None
    message_model: str | None
    consume_from_where: str | None


@dataclass(frozen=True, slots=True)
class ProducerClient:
    group: str
    client_id: str
    address: str
    language: str
    version: int
    last_seen_ms: int


@dataclass(frozen=True, slots=True)
class QueueOffset:
    topic: str
    broker: str
    queue: int
    offset: int


@dataclass(frozen=True, slots=True)
class ConsumeQueueUnit:
    """Where in the log the message at `offset` of a queue lies."""

    offset: int
    phy_offset: int
    size: int
    tags_code: int


@dataclass(frozen=True, slots=True)
class ConsumeQueueUnits:
    min: int
    max: int
    units: list[ConsumeQueueUnit]


@dataclass(frozen=True, slots=True)
class MessageTrack:
    """What one group has done with a message: CONSUMED, NOT_CONSUME_YET, CONSUMED_BUT_FILTERED, NOT_ONLINE,
    CONSUME_BROADCASTING, PULL (it takes messages when it likes) or UNKNOWN, with the reason.
    """

    group: str
    track: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class MessageTrace:
    """One send (`type` Pub) or consumption (Sub) of a message, as the client has traced it."""

    type: str
    group: str
    client_host: str
    time_ms: int
    cost_millis: int
    success: bool


@dataclass(frozen=True, slots=True)
class DirectConsumption:
    """What a client made of a message that it was handed: CR_SUCCESS, CR_LATER, CR_THROW_EXCEPTION, …"""

    result: str
    remark: str | None
    spent_millis: int
    order: bool


@dataclass(frozen=True, slots=True)
class LeadershipTransferred:
    """From the broker at `from_address` to the member `leader`."""

    from_address: str
    leader: str
    term: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """`acknowledged`: the last entry that a voter holds durably, as its leader knows."""

    id: str
    role: str
    leads: bool
    address: str
    acknowledged: int | None
    disk: str


@dataclass(frozen=True, slots=True)
class WritePermChange:
    namesrv: str
    broker: str
    topics: int


@dataclass(frozen=True, slots=True)
class ScrubProgress:
    """How far a member is in reading again all that it has. `size`: bytes of a round, about. Counts without `round` are
    since the member's start.
    """

    address: str
    under_way: bool
    round_bytes: int
    size: int
    rounds: int
    faults: int
    mended: int
    last_round_ms: int | None
    last_round_faults: int | None
    bytes_per_second: int  # 0: reads only when it is told to


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Entries, of both ends and all between, that are damaged on a member's disk. Bytes count from the begin of the
    whole log; a data file is named by its first one. `since_ms`: when the broker's process learned of it.
    """

    first_index: int
    last_index: int
    first_byte: int
    last_byte: int
    files: tuple[str, ...]
    since_ms: int | None
    stage: str  # noting, queued, proving, writing, waiting
    peer: str | None  # whose answer is waited for
    refusals: Mapping[str, str]  # which peers could not give the bytes, and why
    repaired_bytes: int
    retry_ms: int | None  # of one that waits: when all peers are asked again, at the latest


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """What a member knows to be damaged on its disk, and what becomes of it. Counts are since the member's start."""

    address: str
    ranges: Sequence[DamagedRange]
    repaired_ranges: int
    repaired_bytes: int
    scrub: ScrubProgress
