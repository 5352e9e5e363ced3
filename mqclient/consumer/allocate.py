"""Which queues of a topic each member of a consumer group reads: RocketMQ's strategies, by its names.

Every member computes this for itself from the same two sorted lists, so the answers must equal Java's to the queue:
Python and Java members can share a group. All members of a group need the same strategy with the same parameters,
else a queue has two readers, or none.

The `allocate_…` functions are pure. Bad input raises ValueError where Java raises IllegalArgumentException; a member
that is not among the group's (its heartbeat has not arrived yet) gets nothing.
"""

from __future__ import annotations

import bisect
import hashlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from message.queue_shares import averagely, by_circle
from mqclient.message_queue import MessageQueue

Allocate: TypeAlias = Callable[[str, Sequence[MessageQueue], Sequence[str]], list[MessageQueue]]
"""(own client id, all queues of the topic, client ids of all members), both lists sorted -> the own queues."""

VIRTUAL_NODE_COUNT = 10


@dataclass(frozen=True, slots=True)
class AllocateStrategy:
    """A strategy for `ConsumerConfig`; one of your own is a name and a function of the form of `Allocate`.

    A function that raises leaves the member with the queues it has, and is called again soon.
    """

    name: str
    allocate: Allocate


def allocate_averagely(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """Contiguous runs of queues, the first `len(queues) % len(client_ids)` members taking one more."""
    return averagely(client_id, queues, client_ids) if _is_member(client_id, queues, client_ids) else []


def allocate_averagely_by_circle(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[MessageQueue]:
    """One queue to each member in turn, until none is left."""
    return by_circle(client_id, queues, client_ids) if _is_member(client_id, queues, client_ids) else []


def allocate_by_config(
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    *,
    message_queues: Sequence[MessageQueue],
) -> list[MessageQueue]:
    """The queues that someone wrote down for this member, whoever else is there. Nothing is checked."""
    return list(message_queues)


def allocate_by_machine_room(
    client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], *, rooms: Collection[str]
) -> list[MessageQueue]:
    """The queues of brokers called `room@name` with one of `rooms`; nobody reads those of other brokers.

    Runs as in `allocate_averagely`, but what is left over comes from the end, one queue to each of the first members.
    """
    if not _is_member(client_id, queues, client_ids):
        return []
    near = [queue for queue in queues if _machine_room(queue.broker_name) in rooms]
    position = client_ids.index(client_id)
    size, extra = divmod(len(near), len(client_ids))
    allocated = near[position * size : (position + 1) * size]
    if position < extra:
        allocated.append(near[size * len(client_ids) + position])
    return allocated


def allocate_machine_room_nearby(
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    *,
    strategy: AllocateStrategy,
    broker_room: Callable[[MessageQueue], str],
    consumer_room: Callable[[str], str],
) -> list[MessageQueue]:
    """Members read the queues of their own machine room; all share those of rooms where no member is.

    `strategy` shares them out within a room. Raises ValueError for a queue or a member that is in no room.
    """
    if not _is_member(client_id, queues, client_ids):
        return []
    queues_by_room: defaultdict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        if not (room := broker_room(queue)):
            raise ValueError(f"no machine room for {queue}: broker_room must name one")
        queues_by_room[room].append(queue)
    members_by_room: defaultdict[str, list[str]] = defaultdict(list)
    for member in client_ids:
        if not (room := consumer_room(member)):
            raise ValueError(f"no machine room for client id {member}: consumer_room must name one")
        members_by_room[room].append(member)
    own_room = consumer_room(client_id)
    allocated: list[MessageQueue] = []
    if near := queues_by_room.pop(own_room, None):
        allocated += strategy.allocate(client_id, near, members_by_room[own_room])
    for room in sorted(queues_by_room.keys() - members_by_room.keys()):
        allocated += strategy.allocate(client_id, queues_by_room[room], client_ids)
    return allocated


def allocate_by_consistent_hash(
    client_id: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
    *,
    virtual_node_count: int = VIRTUAL_NODE_COUNT,
) -> list[MessageQueue]:
    """Queues and members on a ring; a queue goes to the next member on it.

    Shares are uneven, but a member that comes or goes moves few queues of the others.
    """
    if not _is_member(client_id, queues, client_ids):
        return []
    owners = _ring(client_ids, virtual_node_count)
    points = sorted(owners)
    return [queue for queue in queues if owners[_next_point(points, queue)] == client_id]


AVG = AllocateStrategy("AVG", allocate_averagely)
"""Each member has a run of neighbouring queues; the default, here and in Java."""
AVG_BY_CIRCLE = AllocateStrategy("AVG_BY_CIRCLE", allocate_averagely_by_circle)
"""Queues are dealt out to the members one by one."""
CONSISTENT_HASH = AllocateStrategy("CONSISTENT_HASH", allocate_by_consistent_hash)
"""Members stand on a ring with 10 points each: one that comes or goes moves few queues of the others."""


def by_config(message_queues: Iterable[MessageQueue]) -> AllocateStrategy:
    """CONFIG: exactly these queues, of any topics.

    A queue that nobody's list names is read by nobody. That holds for the group's retry topic, too: `%RETRY%` and the
    group's name, usually one queue per broker.
    """
    fixed = tuple(message_queues)
    return AllocateStrategy("CONFIG", partial(allocate_by_config, message_queues=fixed))


def by_machine_room(rooms: Collection[str]) -> AllocateStrategy:
    """MACHINE_ROOM: the queues of brokers called `room@name` in these rooms, shared out among all members.

    Raises ValueError if there is no room: nothing would be read.
    """
    if isinstance(rooms, str) or not rooms:
        raise ValueError(f"rooms {rooms!r}: write a set of names, such as {{'room1'}}")
    return AllocateStrategy("MACHINE_ROOM", partial(allocate_by_machine_room, rooms=frozenset(rooms)))


def by_machine_room_nearby(
    strategy: AllocateStrategy,
    *,
    broker_room: Callable[[MessageQueue], str],
    consumer_room: Callable[[str], str],
) -> AllocateStrategy:
    """MACHINE_ROOM_NEARBY: `strategy` within each machine room, for queues and members that the functions place."""
    allocate = partial(
        allocate_machine_room_nearby, strategy=strategy, broker_room=broker_room, consumer_room=consumer_room
    )
    return AllocateStrategy(f"MACHINE_ROOM_NEARBY-{strategy.name}", allocate)


def by_consistent_hash(virtual_node_count: int) -> AllocateStrategy:
    """CONSISTENT_HASH with another count of points per member than 10: more of them make shares more even.

    Raises ValueError for a count below 1; at 0, which Java takes, nobody would read anything.
    """
    if virtual_node_count < 1:
        raise ValueError(f"virtual_node_count {virtual_node_count}: at least 1 is needed")
    allocate = partial(allocate_by_consistent_hash, virtual_node_count=virtual_node_count)
    return AllocateStrategy("CONSISTENT_HASH", allocate)


def _is_member(client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    if not client_id:
        raise ValueError("the client id is empty")
    if not queues:
        raise ValueError("there are no queues to share out")
    if not client_ids:
        raise ValueError("the group has no members to share queues out among")
    return client_id in client_ids


def _machine_room(broker_name: str) -> str | None:
    # Java's split drops empty parts at the end, so «room@name@» has a room; «room@» and «a@b@c» have none.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _ring(client_ids: Sequence[str], virtual_node_count: int) -> dict[int, str]:
    owners: dict[int, str] = {}
    for position, client_id in enumerate(client_ids):
        # A client that a broker lists once per connection gets new points for each.
        begin = (
            sum(owner == client_id for owner in owners.values()) if client_id in client_ids[:position] else 0
        )
        for number in range(begin, begin + virtual_node_count):
            owners[_point(f"{client_id}-{number}")] = client_id
    return owners


def _next_point(points: Sequence[int], queue: MessageQueue) -> int:
    # The key is what Java's MessageQueue prints of itself.
    key = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
    position = bisect.bisect_left(points, _point(key))
    return points[position % len(points)]


def _point(key: str) -> int:
    return int.from_bytes(hashlib.md5(key.encode(), usedforsecurity=False).digest()[:4])
