"""Commands that find and show messages."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Annotated

from message.decoder import MessageExt
from message.names import TRACE_TOPIC
from mq.admin.command import Done, Report, Result, command
from mq.admin.options import Bool, BrokerOption, ClusterOption, LeadersOption, Option, TopicOption
from mq.admin.targets import leaders_of, seen_at_each
from mq.admin.timestamps import HINT, timestamp_ms
from mqclient import Admin, AdminError, Message, MessageQueue, Producer
from mqclient.admin.message_admin import phy_offset_of

MsgIdOption = Annotated[str, Option("-i", "--msgId", help="Message id, several with ,")]
ClientGroupOption = Annotated[str, Option("-g", "--consumerGroup", help="With -d: hand it to a client.")]
ClientIdOption = Annotated[str, Option("-d", "--clientId", help="With -g: this client consumes it.")]
BeginOption = Annotated[str, Option("-b", "--beginTimestamp", help=f"Stored from then on: {HINT}")]
EndOption = Annotated[str, Option("-e", "--endTimestamp", help="Stored before.")]
TagsOption = Annotated[str, Option("-s", "--subExpression", help="Only these: 'A || B'.")]
CharsetOption = Annotated[str, Option("-c", "--charsetName", help="Of the bodies.")]


def whole_message(message: MessageExt, charset: str = "UTF-8") -> dict[str, object]:
    """All of it. A body that is no text is shown in base64."""
    try:
        body = {"body": _text(message.body, charset)}
    except UnicodeDecodeError:
        body = {"body_base64": base64.b64encode(message.body).decode()}
    return {
        "topic": message.topic,
        "queue": message.queue_id,
        "queue_offset": message.queue_offset,
        "msg_id": message.uniq_key,
        "offset_msg_id": message.msg_id,
        "phy_offset": message.phy_offset,
        "tags": message.tags,
        "keys": message.keys,
        "born_ms": message.born_timestamp,
        "born_host": message.born_host,
        "stored_ms": message.store_timestamp,
        "store_host": message.store_host,
        "reconsume_times": message.reconsume_times,
        "sys_flag": message.sys_flag,
        "flag": message.flag,
        "size": message.store_size,
        "body_crc": message.body_crc,
        "properties": message.properties,
        **body,
    }


def _text(body: bytes, charset: str, errors: str = "strict") -> str:
    try:
        return body.decode(charset, errors)
    except LookupError:
        raise ValueError(f"no charset {charset}: UTF-8, GBK and the like are") from None


def _line(message: MessageExt) -> dict[str, object]:
    """For a list of many."""
    return {
        "queue": message.queue_id,
        "offset": message.queue_offset,
        "msg_id": message.uniq_key or message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "stored_ms": message.store_timestamp,
        "size": message.store_size,
    }


@command
async def timer_status(
    admin: Admin,
    broker: BrokerOption = "",
    cluster: ClusterOption = "",
    msg_id: Annotated[str, Option("-i", "--msgId", help="Of one message, by the broker's id.")] = "",
) -> Result:
    """How many messages of each topic wait for their time; of one message, what comes next."""
    if msg_id:
        phy_offset_of(msg_id)  # none is asked about what is no id
        seen, silent = await seen_at_each(
            admin, broker, cluster, lambda address: admin.messages.timer_state(address, msg_id)
        )
        return Report(seen, silent=silent)
    counts, silent = await seen_at_each(admin, broker, cluster, admin.messages.timers)
    rows = [
        {"address": address, "topic": topic, "waiting": count}
        for address, told in counts.items()
        for topic, count in told.items()
    ]
    footer = "each member of a group counts all of the group's" if rows else "no message waits for its time"
    return Report(rows, f"\n{footer}", silent=silent)


@command
async def pop_status(admin: Admin, broker: BrokerOption = "", cluster: LeadersOption = "") -> Result:
    """Which messages pop consumers have not acknowledged yet, since when, and when the first of them comes again."""
    told = {
        leader: await admin.messages.popped(leader) for leader in await leaders_of(admin, broker, cluster)
    }
    rows = [
        {
            "address": address,
            "group": queue.group,
            "topic": queue.topic,
            "queue": queue.queue_id,
            "inFlight": queue.count,
            "oldestPopMs": queue.oldest_pop_ms,
            "nextVisibleMs": queue.next_visible_ms,
        }
        for address, popped in told.items()
        for queue in popped.queues
    ]
    total = sum(popped.total for popped in told.values())
    return Report(rows, f"\n{total} in flight" if rows else "\nno popped message is in flight")


@command
async def transaction_status(
    admin: Admin,
    broker: BrokerOption = "",
    cluster: ClusterOption = "",
    msg_id: Annotated[str, Option("-i", "--msgId", help="Of one message, by the broker's id.")] = "",
) -> Result:
    """How many transactions of each topic are undecided, and when their producers are asked next; of one message, what
    comes next.
    """
    leaders = await leaders_of(admin, broker, cluster)
    if msg_id:
        return Report({leader: await admin.messages.transaction_state(leader, msg_id) for leader in leaders})
    told = {leader: await admin.messages.pending_transactions(leader) for leader in leaders}
    rows = [
        {
            "address": leader,
            "topic": topic,
            "undecided": of_topic.count,
            "oldest_ms": of_topic.oldest_ms,
            "next_check_ms": of_topic.next_check_ms,
        }
        for leader, pending in told.items()
        for topic, of_topic in sorted(pending.topics.items())
    ]
    return Report(rows, f"\ntotal {sum(pending.total for pending in told.values())}")


@command
async def resume_check_half_message(
    admin: Admin, msg_id: MsgIdOption, broker: BrokerOption = "", cluster: ClusterOption = ""
) -> Result:
    """Prepares a message of TRANS_CHECK_MAX_TIME_TOPIC again, by the broker's id: its producers are asked once more."""
    leaders = await leaders_of(admin, broker, cluster)
    if len(leaders) != 1:
        raise ValueError(f"{len(leaders)} groups have a leader: name the one that has the message with -b")
    await admin.messages.resume_check(leaders[0], msg_id)
    return [Done(leaders[0], f"{msg_id} is prepared again, its producers are asked from the beginning")]


@command
async def query_msg_by_id(
    admin: Admin,
    topic: TopicOption,
    msg_id: MsgIdOption,
    group: ClientGroupOption = "",
    client_id: ClientIdOption = "",
    resend: Annotated[
        Bool, Option("-s", "--sendMessage", help="Send it once more, as a new one.")
    ] = Bool.FALSE,
    charset: Annotated[str, Option("-f", "--bodyFormat", help="Charset of the body.")] = "UTF-8",
) -> Result:
    """A message by the id that the broker gave it (offset message id), and what groups have done with it."""
    messages = [
        await admin.messages.by_offset_id(topic, item.strip()) for item in msg_id.split(",") if item.strip()
    ]
    if group or client_id:
        return await _hand_over(admin, messages, group, client_id)
    if resend:
        return await _resend(admin, messages)
    return await _with_tracks(admin, messages, charset)


@command
async def query_msg_by_unique_key(
    admin: Admin,
    topic: TopicOption,
    msg_id: MsgIdOption,
    group: ClientGroupOption = "",
    client_id: ClientIdOption = "",
    show_all: Annotated[
        bool, Option("-a", "--showAll", help="All with this id, for one that was sent again.")
    ] = False,
) -> Result:
    """A message by the id that its sender gave it, and what groups have done with it."""
    messages = []
    for item in filter(None, (part.strip() for part in msg_id.split(","))):
        found = await admin.messages.by_unique_key(topic, item)
        if not found:
            raise AdminError(f"no message {item} in topic {topic}")
        messages += found if show_all else found[-1:]
    if group or client_id:
        return await _hand_over(admin, messages, group, client_id)
    return await _with_tracks(admin, messages, "UTF-8")


async def _with_tracks(admin: Admin, messages: list[MessageExt], charset: str) -> Result:
    shown: dict[str, object] = {}
    for message in messages:
        tracks = await admin.messages.tracks(message)
        shown[message.msg_id] = {
            **whole_message(message, charset),
            "groups": {track.group: track.track for track in tracks},
        }
    return shown


async def _hand_over(admin: Admin, messages: list[MessageExt], group: str, client_id: str) -> Result:
    if not group or not client_id:
        raise ValueError("a message is handed to a client by both, its group with -g and its id with -d")
    return [await admin.messages.consume_directly(group, client_id, message) for message in messages]


async def _resend(admin: Admin, messages: list[MessageExt]) -> Result:
    rows = []
    async with Producer(admin.namesrv_addr, "ReSendMsgById") as producer:
        for message in messages:
            copy = Message(message.topic, message.body, message.tags or "", message.keys or "")
            result = await producer.send(copy)
            rows.append({"sent": message.msg_id, "as": result.msg_id, "queue": result.message_queue.queue_id})
    return rows


@command
async def query_msg_trace_by_id(
    admin: Admin,
    msg_id: Annotated[str, Option("-i", "--msgId", help="The id that its sender gave it.")],
    trace_topic: Annotated[str, Option("-t", "--traceTopic")] = TRACE_TOPIC,
    begin: BeginOption = "0",
    end: EndOption = "",
    max_num: Annotated[int, Option("-c", "--maxNum", least=1)] = 64,
) -> Result:
    """Who sent a message and who consumed it, as clients with message tracing have noted."""
    span = {"end_ms": timestamp_ms(end)} if end else {}
    traces = await admin.messages.traces(
        msg_id, trace_topic=trace_topic, count_max=max_num, begin_ms=timestamp_ms(begin), **span
    )
    if not traces:
        raise AdminError(
            f"no trace of message {msg_id}: its clients have none unless tracing is enabled there"
        )
    return traces


@command
async def query_msg_by_key(
    admin: Admin,
    topic: TopicOption,
    key: Annotated[str, Option("-k", "--msgKey", help="One of its keys.")],
    begin: BeginOption = "0",
    end: EndOption = "",
    max_num: Annotated[int, Option("-m", "--maxNum", least=1)] = 64,
) -> Result:
    """The newest messages that carry a key."""
    span = {"end_ms": timestamp_ms(end)} if end else {}
    messages = await admin.messages.by_key(
        topic, key, count_max=max_num, begin_ms=timestamp_ms(begin), **span
    )
    if not messages:
        raise AdminError(f"no message of topic {topic} with key {key}")
    return [_line(message) for message in messages]


@command
async def query_msg_by_offset(
    admin: Admin,
    topic: TopicOption,
    broker: Annotated[str, Option("-b", "--brokerName", help="Name of the broker.")],
    queue: Annotated[int, Option("-i", "--queueId", least=0)],
    offset: Annotated[int, Option("-o", "--offset", least=0)],
    charset: Annotated[str, Option("-f", "--bodyFormat", help="Charset of the body.")] = "UTF-8",
) -> Result:
    """The message at an offset of a queue."""
    return whole_message(await admin.messages.by_offset(MessageQueue(topic, broker, queue), offset), charset)


@command
async def query_cq(
    admin: Admin,
    topic: TopicOption,
    queue: Annotated[int, Option("-q", "--queue", least=0)],
    index: Annotated[int, Option("-i", "--index", least=0, help="First offset.")],
    count: Annotated[int, Option("-c", "--count", least=1)] = 10,
    broker: Annotated[
        str, Option("-b", "--broker", metavar="ADDR", help="Else the topic's first broker.")
    ] = "",
    consumer: Annotated[str, Option("-g", "--consumer", help="Consumer group.")] = "",
) -> Result:
    """Units of a ConsumeQueue: where in the log the messages of a queue lie."""
    name = (await admin.topics.route(topic))[0].broker
    found = await admin.messages.consume_queue_units(
        MessageQueue(topic, name, queue), index, count, group=consumer, address=broker
    )
    return Report(found.units, f"\nthe queue has offsets {found.min} to below {found.max}", found)


async def _read(
    admin: Admin, queue: MessageQueue, begin: str, end: str, tags: str
) -> AsyncIterator[MessageExt]:
    first, last = await admin.messages.bounds(queue)
    if begin:
        first = await admin.messages.offset_by_time(queue, timestamp_ms(begin))
    if end:
        last = await admin.messages.offset_by_time(queue, timestamp_ms(end))
    async for message in admin.messages.read(queue, first, last, tags=tags):
        yield message


def _body_line(message: MessageExt, charset: str, *, body: bool) -> dict[str, object]:
    return {**_line(message), **({"body": _text(message.body, charset, "replace")} if body else {})}


@command
async def print_msg(
    admin: Admin,
    topic: TopicOption,
    charset: CharsetOption = "UTF-8",
    tags: TagsOption = "*",
    begin: BeginOption = "",
    end: EndOption = "",
    print_body: Annotated[Bool, Option("-d", "--printBody")] = Bool.TRUE,
) -> Result:
    """All messages of a topic that are there now."""
    rows = []
    for queue in await admin.messages.queues(topic):
        async for message in _read(admin, queue, begin, end, tags):
            line = _body_line(message, charset, body=bool(print_body))
            rows.append({"broker": queue.broker_name, **line})
    return rows


@command
async def print_msg_by_queue(
    admin: Admin,
    topic: TopicOption,
    broker: Annotated[str, Option("-a", "--brokerName", help="Name of the broker.")],
    queue: Annotated[int, Option("-i", "--queueId", least=0)],
    charset: CharsetOption = "UTF-8",
    tags: TagsOption = "*",
    begin: BeginOption = "",
    end: EndOption = "",
    print_msg: Annotated[Bool, Option("-p", "--printMsg")] = Bool.FALSE,
    print_body: Annotated[Bool, Option("-d", "--printBody")] = Bool.FALSE,
    calculate: Annotated[Bool, Option("-f", "--calculate", help="Count them by tag.")] = Bool.FALSE,
) -> Result:
    """Messages of a queue that are there now; their number by tag with -f true."""
    rows, counts = [], dict[str, int]()
    async for message in _read(admin, MessageQueue(topic, broker, queue), begin, end, tags):
        counts[message.tags or ""] = counts.get(message.tags or "", 0) + 1
        if print_msg:
            rows.append(_body_line(message, charset, body=bool(print_body)))
    tag_rows = [
        {"tags": tag or None, "messages": count}
        for tag, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ]
    if calculate and print_msg:
        told = ", ".join(f"{row['tags'] or 'no tag'}: {row['messages']}" for row in tag_rows)
        return Report(rows, f"\n{told}", {"messages": rows, "tags": tag_rows})
    if calculate:
        return tag_rows
    return rows if print_msg else {"messages": sum(counts.values())}


@command
async def consume_message(
    admin: Admin,
    topic: TopicOption,
    broker: Annotated[str, Option("-b", "--brokerName", help="Name of a broker; else all.")] = "",
    queue: Annotated[int, Option("-i", "--queueId", help="With -b: this queue alone.")] = -1,
    offset: Annotated[int, Option("-o", "--offset", help="With -i: from this offset on.")] = -1,
    begin: Annotated[str, Option("-s", "--beginTimestamp", help=HINT)] = "",
    end: EndOption = "",
    count: Annotated[int, Option("-c", "--MessageNumber", least=1, help="So many at most.")] = 128,
) -> Result:
    """Messages of a topic from its oldest on. No group's progress changes."""
    if (queue >= 0 and not broker) or (offset >= 0 and queue < 0):
        raise ValueError("a queue is named by its broker with -b and its id with -i; -o goes with both")
    rows: list[dict[str, object]] = []
    for one in await admin.messages.queues(topic):
        if (broker and one.broker_name != broker) or queue not in (-1, one.queue_id):
            continue
        async for message in _read(admin, one, begin, end, "*"):
            if message.queue_offset >= offset:
                rows.append({"broker": one.broker_name, **_body_line(message, "UTF-8", body=True)})
            if len(rows) == count:
                return rows
    return rows
