"""Commands that move groups in a topic."""

from __future__ import annotations

from typing import Annotated

from mq.admin.command import Result, command
from mq.admin.options import Bool, Option, TopicOption
from mq.admin.targets import broker_name_of
from mq.admin.timestamps import HINT, timestamp_ms
from mqclient import Admin, MessageQueue

ForceOption = Annotated[
    Bool, Option("-f", "--force", help="Forwards, too; of use with useServerSideResetOffset=false.")
]
OneClusterOption = Annotated[str, Option("-c", "--cluster", help="At this cluster alone.")]


@command
async def reset_offset_by_time(
    admin: Admin,
    group: Annotated[str, Option("-g", "--group", help="Consumer group.")],
    topic: TopicOption,
    timestamp: Annotated[str, Option("-s", "--timestamp", help=HINT)],
    force: ForceOption = Bool.TRUE,
    broker: Annotated[str, Option("-b", "--broker", metavar="ADDR", help="With -q: this leader.")] = "",
    queue: Annotated[int, Option("-q", "--queue", help="With -b: this queue alone.")] = -1,
    offset: Annotated[int, Option("-o", "--offset", help="With -q: to this offset.")] = -1,
    cluster: OneClusterOption = "",
) -> Result:
    """Have a group read again, or not at all, from a time on. Consumers at work go on from there."""
    when_ms = timestamp_ms(timestamp)
    if bool(broker) != (queue >= 0) or (offset >= 0 and queue < 0):
        raise ValueError("one queue is named by both, -b with its leader's address and -q; -o goes with them")
    if not broker:
        return await admin.groups.reset_offsets(group, topic, when_ms, cluster=cluster, force=bool(force))
    if offset < 0:
        name = await broker_name_of(admin, broker)
        offset = await admin.messages.offset_by_time(MessageQueue(topic, name, queue), when_ms)
    return await admin.groups.reset_queue_offset(broker, group, topic, queue, offset)


@command
async def skip_accumulated_message(
    admin: Admin,
    group: Annotated[str, Option("-g", "--group", help="Consumer group.")],
    topic: TopicOption,
    force: ForceOption = Bool.TRUE,
    cluster: OneClusterOption = "",
) -> Result:
    """Have a group go on behind all that is there now: it never reads what waits."""
    return await admin.groups.reset_offsets(group, topic, -1, cluster=cluster, force=bool(force))


@command
async def clone_group_offset(
    admin: Admin,
    source: Annotated[str, Option("-s", "--srcGroup", help="The group that stands there.")],
    destination: Annotated[str, Option("-d", "--destGroup", help="The group to stand there, too.")],
    topic: TopicOption,
) -> Result:
    """Have one group stand where another one stands in a topic."""
    return await admin.groups.clone_offsets(source, destination, topic)
