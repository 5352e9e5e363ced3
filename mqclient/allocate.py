"""Which queues of a topic each member of a consumer group reads.

Every member computes this for itself from the same two sorted lists, so the answer must equal Java's to the queue:
Python and Java members can share a group.
"""

from __future__ import annotations

from collections.abc import Sequence

from mqclient.message_queue import MessageQueue


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Contiguous runs of queues, the first `len(queues) % len(client_ids)` members taking one more.

    Both lists must be sorted. A member that is not in `client_ids` (its heartbeat has not arrived yet) gets nothing.
    """
    if client_id not in client_ids:
        return []
    position = client_ids.index(client_id)
    size, extra = divmod(len(queues), len(client_ids))
    begin = position * size + min(position, extra)
    return list(queues[begin : begin + size + (position < extra)])
