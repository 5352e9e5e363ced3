"""What a broker's figures mean, and their form for Prometheus.

Each room offers its own as a plain mapping (dledger/figures.py); here is the one table of all that there are, from
which docs/metrics.md is checked. Names end with their unit; a number without one counts or is a yes (1) or no (0).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from itertools import accumulate

import msgspec

from dledger.figures import Figures, Histogram

PREFIX = "pydledger_"
# Of figures that RocketMQ has, too, under its names.
ROCKETMQ_PREFIX = "rocketmq_"


class MetricKind(Enum):
    GAUGE = "gauge"
    COUNTER = "counter"  # only grows while the process lives
    HISTOGRAM = "histogram"  # by size: how many there were up to each bound
    SUMMARY = "summary"  # `sum` and `count` of all, quantiles of the newest ones


class Metric(msgspec.Struct, frozen=True):
    """`label`: that its values are told apart by, beside those of the broker."""

    kind: MetricKind
    meaning: str
    label: str | None = None


def _gauge(meaning: str, label: str | None = None) -> Metric:
    return Metric(MetricKind.GAUGE, meaning, label)


def _counter(meaning: str, label: str | None = None) -> Metric:
    return Metric(MetricKind.COUNTER, meaning, label)


METRICS: Mapping[str, Metric] = {
    # Roles and elections.
    "term": _gauge("current term"),
    "role": _gauge("1 for the role that the member has, 0 for the others", "role"),
    "has_leader": _gauge("1 while the member knows who leads"),
    "serving": _gauge("1 while the member leads and takes sends"),
    "failed": _gauge("1 once the member has stopped by itself"),
    "can_vote": _gauge("0 while the group is not formed"),
    "doubted": _gauge(
        "1 while the member may have lost what it acknowledged: its vote alone makes no majority"
    ),
    "voter": _gauge("1 while the member has a voter's seat, by the last membership entry of its log"),
    "members": _gauge("voters and learners of the group, by that entry", "seat"),
    "links": _gauge("peers that the member has a connection to"),
    "elections_total": _counter(
        "elections that the member began (pre-votes not counted), won and lost", "outcome"
    ),
    "leader_changes_total": _counter("times that the member learnt of a leader of another term"),
    "entries_cut_total": _counter("entries that the member cut because its leader held others"),
    "step_downs_total": _counter("times that the member ceased to lead, a clean stop included"),
    "transfers_begun_total": _counter("times that the member, leading, began to hand over"),
    "transfers_given_up_total": _counter("times that it led on because its target did not"),
    # The log.
    "ledger_begin_index": _gauge("first entry that the log holds"),
    "ledger_end_index": _gauge("last entry of the log, -1 if it is empty"),
    "durable_index": _gauge("last entry that is on this member's disk"),
    "committed_index": _gauge("last entry that this member knows to be committed"),
    "applied_index": _gauge("last entry that readers of this member can see"),
    "commit_lag_entries": _gauge("entries of the log that are not known to be committed"),
    "apply_lag_entries": _gauge("committed entries that readers cannot see yet"),
    "watermark_index": _gauge("last entry that each member has acknowledged; only of the leader", "peer"),
    "uncommitted_bytes": _gauge("bytes that the leader appended and no majority holds yet"),
    "ledger_bytes": _gauge("size of the log"),
    # Damage.
    "faulty_ranges": _gauge("ranges of entries that are known to be damaged on this member's disk"),
    "faulty_bytes": _gauge("size of these ranges"),
    "scrub_rounds_total": _counter("times that the member has read all it has since it started"),
    "scrub_read_bytes_total": _counter("bytes that the scrub has read, index and slots among them"),
    "scrub_round_read_bytes": _gauge("bytes that the round under way has read, 0 between rounds"),
    "scrub_faults_total": _counter("places that the scrub found damaged"),
    "scrub_mended_total": _counter(
        "those of them that it mended on the spot, from sound entries or from memory"
    ),
    "consume_queue_mended_total": _counter(
        "units of ConsumeQueues that were damaged and were written anew from the log, by the scrub or for a reader"
    ),
    # Disk.
    "sync_seconds": Metric(
        MetricKind.SUMMARY, "time that a sync of the log takes; quantiles are of the newest 1024", "quantile"
    ),
    "disk_free_bytes": _gauge("free space where the log is, as of the last look (every 10 s)"),
    "disk_size_bytes": _gauge("size of the file system where the log is"),
    "disk_fit": _gauge(
        "0 while the disk hangs or has no space for the log, so that the member does not lead"
    ),
    "disk_full": _gauge("1 while sends are refused because the disk is too full"),
    # Timer messages.
    "rocketmq_timing_messages": _gauge("timer messages that wait for their time", "topic"),
    "rocketmq_timer_enqueue_lag": _gauge(
        "stored timer messages of which the member does not know yet when they are due"
    ),
    "rocketmq_timer_dequeue_lag": _gauge(
        "timer messages that are due and not delivered yet; only of the leader"
    ),
    "rocketmq_timer_dequeue_latency": _gauge("how long the first of these is due, ms; only of the leader"),
    "rocketmq_timer_enqueue_total": _counter("timer messages stored since the member started", "topic"),
    "rocketmq_timer_dequeue_total": _counter(
        "timer messages that this member delivered since it started", "topic"
    ),
    # Transactions.
    "rocketmq_half_messages": _gauge(
        "prepared messages that are undecided, from a second after they were stored; only of the leader",
        "topic",
    ),
    "rocketmq_commit_messages_total": _counter(
        "transactions that this member committed since it started", "topic"
    ),
    "rocketmq_rollback_messages_total": _counter("likewise, that were rolled back", "topic"),
    "rocketmq_finish_message_latency": Metric(
        MetricKind.HISTOGRAM,
        "seconds from the birth of a prepared message, by its producer's clock, to its commit by this member",
        "topic",
    ),
    "transactions_given_up_total": _counter(
        "likewise, that no producer decided in time: their messages are in TRANS_CHECK_MAX_TIME_TOPIC",
        "topic",
    ),
    # Pop consumption.
    "popped_messages_in_flight": _gauge("popped messages that are neither acknowledged nor expired"),
    "popped_messages_revived_total": _counter(
        "popped messages that this member, leading, had come again because they were not acknowledged in time"
    ),
    "popped_messages_dead_total": _counter(
        "likewise, that went to a dead letter topic because it was their last attempt"
    ),
    # Messages.
    "queues": _gauge("queues of all topics that have had a message"),
    "messages_in_total": _counter("messages stored since the member began to serve"),
    "messages_out_total": _counter("messages given to consumers since the member began to serve"),
    "waiting_replies": _gauge("replies to requests that wait until their requesters are connected"),
    "waiting_reply_bytes": _gauge("what these take"),
    "waited_replies_total": _counter(
        "replies whose wait ended: requester_came, expired, stopped_leading; or that did not wait: no_room",
        "end",
    ),
    "unread_bytes": _gauge(
        "bytes of answers that clients have not taken, as of the last look (every second)"
    ),
    "unread_closed_total": _counter(
        "connections closed because all together had left too much of their answers"
    ),
    "connections": _gauge("connections of clients"),
    "connections_refused_total": _counter("connections closed because as many as are allowed were open"),
    "unfinished_bytes": _gauge("bytes of large frames whose end has not come yet"),
    "unfinished_closed_total": _counter(
        "connections closed because all together held too much of frames without their ends"
    ),
    "certificate_not_after_seconds": _gauge(
        "end of the certificate that clients are shown now, in seconds since 1970; none without TLS", "path"
    ),
}


def full_name(name: str) -> str:
    return name if name.startswith(ROCKETMQ_PREFIX) else PREFIX + name


def metrics_text(figures: Figures, labels: Mapping[str, str]) -> str:
    """In Prometheus' text format. `labels` say whose figures they are."""
    lines: list[str] = []
    for name, value in figures.items():
        metric = METRICS[name]
        lines.append(f"# HELP {full_name(name)} {metric.meaning}")
        lines.append(f"# TYPE {full_name(name)} {metric.kind.value}")
        lines += _samples(full_name(name), metric, value, labels)
    return "\n".join(lines) + "\n"


def _samples(
    name: str,
    metric: Metric,
    value: float | Mapping[str, float] | Mapping[str, Histogram],
    labels: Mapping[str, str],
) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{name}{_label_text(labels)} {_number(value)}"
        return
    assert metric.label is not None, f"{name} has values by a label"
    for key, part in value.items():
        if isinstance(part, Histogram):
            yield from _histogram_samples(name, part, {**labels, metric.label: key})
        elif metric.kind is MetricKind.SUMMARY and key in ("sum", "count"):
            yield f"{name}_{key}{_label_text(labels)} {_number(part)}"
        else:
            yield f"{name}{_label_text({**labels, metric.label: key})} {_number(part)}"


def _histogram_samples(name: str, histogram: Histogram, labels: Mapping[str, str]) -> Iterator[str]:
    counts = list(accumulate(histogram.counts))
    for bound, count in zip([*map(str, histogram.bounds), "+Inf"], counts, strict=True):
        yield f"{name}_bucket{_label_text({**labels, 'le': bound})} {count}"
    yield f"{name}_sum{_label_text(labels)} {_number(histogram.sum)}"
    yield f"{name}_count{_label_text(labels)} {counts[-1]}"


def _label_text(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value)
