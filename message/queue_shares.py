"""How the members of a consumer group share the queues of a topic: the two ways that brokers know, too.

Whoever computes it, client or broker, Java or Python, must come to the same answer, or a queue has two readers.
"""

from collections.abc import Sequence
from typing import TypeVar

_Queue = TypeVar("_Queue")


def averagely(client_id: str, queues: Sequence[_Queue], client_ids: Sequence[str]) -> list[_Queue]:
    """Contiguous runs of queues, the first `len(queues) % len(client_ids)` members taking one more. None for a client
    that is not among `client_ids`.
    """
    if client_id not in client_ids:
        return []
    position = client_ids.index(client_id)
    size, extra = divmod(len(queues), len(client_ids))
    begin = position * size + min(position, extra)
    return list(queues[begin : begin + size + (position < extra)])


def by_circle(client_id: str, queues: Sequence[_Queue], client_ids: Sequence[str]) -> list[_Queue]:
    """One queue to each member in turn, until none is left."""
    return list(queues[client_ids.index(client_id) :: len(client_ids)]) if client_id in client_ids else []
