"""Where consumer groups are, against the ends of their queues: an offset below 0 or behind the next message's is none
that a consumer can have come to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark_dledger.findings import Finding, Kind

OffsetTable = Mapping[str, Mapping[int, int]]  # "topic@group" -> queue id -> next offset to consume


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """The queue offsets behind the last messages, as far as all replicas of the group tell."""

    ends: Mapping[tuple[str, int], int]
    # False: each log is damaged or begins late, so a queue may have had more messages than are known.
    is_sure: bool
    unknown_are_empty: bool  # a queue that is not in `ends` never had a message
    index: int  # entries behind it were not read, so what came later is not judged

    def end_of(self, topic: str, queue_id: int) -> int | None:
        """None where it is not known."""
        if not self.is_sure:
            return None
        return self.ends.get((topic, queue_id), 0 if self.unknown_are_empty else None)


def group_offset_findings(
    replica: str, file: str, table: OffsetTable, ends: QueueEnds, *, is_current: bool = True
) -> Iterator[Finding]:
    """`file`: whose table it is. `is_current` False: it may know of messages that were not read, so only offsets below
    0 are judged."""
    for key, queues in sorted(table.items()):
        topic, _, group = key.rpartition("@")
        for queue_id, offset in sorted(queues.items()):
            end = ends.end_of(topic, queue_id) if is_current else None
            if offset < 0:
                sentence = f"group {group} is at offset {offset}, below the queue's first one"
            elif end is not None and offset > end:
                sentence = f"group {group} is at offset {offset}, the queue's next message will have {end}"
            else:
                continue
            yield Finding(
                kind=Kind.GROUP_OFFSET,
                replica=replica,
                file=file,
                topic=topic,
                queue_id=queue_id,
                first_offset=offset,
                last_offset=offset,
                sentence=sentence,
            )
