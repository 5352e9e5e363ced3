"""Records of one queue in few words, for histories that are told one by one. Times are milliseconds."""

from typing import Any

from made_history import BROKER, GROUP, MS, TOPIC

from faults.history import (
    READ_BACK,
    AnyRecord,
    Delivered,
    FaultBegun,
    FaultEnded,
    FaultVerified,
    LeaderSeen,
    Outcome,
    Phase,
    Poll,
    QueueEnd,
    Send,
    SendBegun,
)


def at(consumer: str = "c", group: str = GROUP) -> dict[str, Any]:
    return {"group": group, "consumer": consumer, "broker": BROKER, "topic": TOPIC, "queue_id": 0}


def begun(at_ms: float, sequence: int) -> SendBegun:
    return SendBegun(at_ns=round(at_ms * MS), producer="p", sequence=sequence, topic=TOPIC)


def acknowledged(at_ms: float, sequence: int, offset: int, *, attempts: int = 1) -> list[AnyRecord]:
    """Sent, and a millisecond later at its end."""
    end = Send(
        at_ns=round((at_ms + 1) * MS),
        begun_ns=round(at_ms * MS),
        producer="p",
        sequence=sequence,
        outcome="ok",
        topic=TOPIC,
        broker=BROKER,
        queue_id=0,
        queue_offset=offset,
        phy_offset=offset * 1000,
        attempts=attempts,
    )
    return [begun(at_ms, sequence), end]


def ended(at_ms: float, sequence: int, outcome: Outcome, *, after_ms: float = 1) -> list[AnyRecord]:
    """Without an acknowledgement."""
    end = Send(
        at_ns=round((at_ms + after_ms) * MS),
        begun_ns=round(at_ms * MS),
        producer="p",
        sequence=sequence,
        outcome=outcome,
        topic=TOPIC,
    )
    return [begun(at_ms, sequence), end]


def poll(at_ms: float, offset: int, sequences: list[int], group: str = GROUP) -> Poll:
    return Poll(
        at_ns=round(at_ms * MS),
        offset=offset,
        next_offset=offset + len(sequences),
        messages=tuple(Delivered(offset + at, "p", sequence) for at, sequence in enumerate(sequences)),
        **at(group=group),
    )


def read_back(at_ms: float, sequences: list[int]) -> list[AnyRecord]:
    """From offset 0 to the end of the queue."""
    where = at(group=READ_BACK)
    end = QueueEnd(at_ns=round(at_ms * MS), min_offset=0, max_offset=len(sequences), **where)
    return [poll(at_ms, 0, sequences, READ_BACK), end]


def fault(
    begin_ms: float,
    end_ms: float | None,
    nemesis: str = "kill",
    target: str = "n0",
    *,
    outage_ms: int | None = 3_000,
    is_seen: bool = True,
    while_leading: bool = False,
) -> list[AnyRecord]:
    """Its begin is its number."""
    number = round(begin_ms)
    records: list[AnyRecord] = [
        FaultBegun(
            at_ns=round(begin_ms * MS),
            fault=number,
            nemesis=nemesis,
            target=target,
            outage_ms=outage_ms,
            while_leading=while_leading,
        )
    ]
    if is_seen:
        records.append(FaultVerified(at_ns=round(begin_ms * MS), fault=number, evidence="seen"))
    if end_ms is not None:
        records.append(FaultEnded(at_ns=round(end_ms * MS), fault=number))
    return records


def leader(at_ms: float, term: int, member: str) -> LeaderSeen:
    return LeaderSeen(at_ns=round(at_ms * MS), broker=BROKER, term=term, leader=member, seen_by=member)


def calm(at_ms: float) -> Phase:
    return Phase(at_ns=round(at_ms * MS), name="calm")


def drain(at_ms: float) -> Phase:
    return Phase(at_ns=round(at_ms * MS), name="drain")


def in_order(*records: AnyRecord | list[AnyRecord]) -> list[AnyRecord]:
    """Of time."""
    flat = [one for part in records for one in (part if isinstance(part, list) else [part])]
    return sorted(flat, key=lambda record: record.at_ns)
