"""What brokers and NameServers can do to an Admin: whatever they answer, a call returns or raises AdminError."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from admin_cluster import BROKER, NAMESRV, AdminCluster
from hostile_values import NOT_JSON, hostile_bodies, hostile_fields
from one_broker import heart_beat, send_fields

from message.message_id import offset_message_id, pack_host
from mqclient import Admin, AdminError, MessageQueue
from mqclient.admin.admin_calls import READS
from remoting.bodies.auth_bodies import PolicyEntryInfo, UserInfo
from remoting.bodies.bodies import SubscriptionGroupConfig
from remoting.bodies.topic_bodies import TopicConfig
from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand

CLUSTER = "GoldenCluster"
QUEUE = MessageQueue("T", "golden-a", 0)
MSG_ID = offset_message_id(pack_host(BROKER), 0)  # of the first message
VARIANTS_MAX = 40  # of the answers to one request of a call
# What others would have to answer: clients, a group with followers.
TOLD_BY_OTHERS = {
    RequestCode.GET_CONSUMER_RUNNING_INFO: (
        b'{"mqTable":{{"brokerName":"golden-a","queueId":1,"topic":"T"}:{"commitOffset":0}},"properties":{"a":"b"}}'
    ),
    RequestCode.LEADERSHIP_TRANSFER: b'{"leaderId":"n1","term":2}',
    RequestCode.ADD_MEMBER: b"",
    RequestCode.REMOVE_MEMBER: b"",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: b'{"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}',
}

Call = Callable[[Admin], Awaitable[Any]]


async def read(admin: Admin) -> list[Any]:
    return [message async for message in admin.messages.read(QUEUE, 0, 2)]


async def delete_topic(admin: Admin) -> None:
    await admin.topics.put(BROKER, TopicConfig(topic_name="D"))
    await admin.topics.delete("D", CLUSTER)


async def by_offset_id(admin: Admin) -> None:
    message = await admin.messages.by_offset(QUEUE, 0)
    await admin.messages.by_offset_id("T", message.msg_id)


async def consume_directly(admin: Admin) -> None:
    await admin.messages.consume_directly("g", "c1", await admin.messages.by_offset(QUEUE, 0))


async def tracks(admin: Admin) -> None:
    await admin.messages.tracks(await admin.messages.by_offset(QUEUE, 0))


USER = UserInfo(username="u", password="p")
ENTRY = PolicyEntryInfo(resource="Topic:T", actions=["Pub"], decision="Allow")
CALLS: dict[str, Call] = {
    "topics.names": lambda admin: admin.topics.names(CLUSTER),
    "topics.names_with_groups": lambda admin: admin.topics.names_with_groups(),
    "topics.route": lambda admin: admin.topics.route("T"),
    "topics.clusters": lambda admin: admin.topics.clusters("T"),
    "topics.status": lambda admin: admin.topics.status("T"),
    "topics.consumers": lambda admin: admin.topics.consumers("T"),
    "topics.stats": lambda admin: admin.topics.stats("T"),
    "topics.configs": lambda admin: admin.topics.configs(BROKER),
    "topics.system_names": lambda admin: admin.topics.system_names(BROKER),
    "topics.put": lambda admin: admin.topics.put(BROKER, TopicConfig(topic_name="N")),
    "topics.put_all": lambda admin: admin.topics.put_all(BROKER, [TopicConfig(topic_name="N")]),
    "topics.set_perm": lambda admin: admin.topics.set_perm(BROKER, "T", 6),
    "topics.delete": delete_topic,
    "topics.forget": lambda admin: admin.topics.forget("N", CLUSTER, [BROKER]),
    "topics.all_stats": lambda admin: admin.topics.all_stats(),
    "groups.configs": lambda admin: admin.groups.configs(BROKER),
    "groups.config": lambda admin: admin.groups.config("g"),
    "groups.set_request_mode": lambda admin: admin.groups.set_request_mode(BROKER, "g", "T", "POP"),
    "groups.put": lambda admin: admin.groups.put(BROKER, SubscriptionGroupConfig(group_name="n")),
    "groups.put_all": lambda admin: admin.groups.put_all(BROKER, [SubscriptionGroupConfig(group_name="n")]),
    "groups.delete": lambda admin: admin.groups.delete(BROKER, "n"),
    "groups.delete_in_cluster": lambda admin: admin.groups.delete_in_cluster("n", CLUSTER),
    "groups.progress": lambda admin: admin.groups.progress("g", clients=True),
    "groups.progress_with_tps": lambda admin: admin.groups.progress_with_tps("g", "T"),
    "groups.all_progress": lambda admin: admin.groups.all_progress(),
    "groups.reset_offsets": lambda admin: admin.groups.reset_offsets("g", "T", 0),
    "groups.reset_queue_offset": lambda admin: admin.groups.reset_queue_offset(BROKER, "g", "T", 0, 0),
    "groups.clone_offsets": lambda admin: admin.groups.clone_offsets("g", "h", "T"),
    "groups.connections": lambda admin: admin.groups.connections("g"),
    "groups.running_info": lambda admin: admin.groups.running_info("g", "c1"),
    "groups.producer_connections": lambda admin: admin.groups.producer_connections("p", "T"),
    "groups.producers": lambda admin: admin.groups.producers(BROKER),
    "brokers.clusters": lambda admin: admin.brokers.clusters(),
    "brokers.members": lambda admin: admin.brokers.members(),
    "brokers.day_counts": lambda admin: admin.brokers.day_counts(),
    "brokers.runtime_info": lambda admin: admin.brokers.runtime_info(BROKER),
    "brokers.ha_status": lambda admin: admin.brokers.ha_status(BROKER),
    "brokers.config": lambda admin: admin.brokers.config(BROKER),
    "brokers.update_config": lambda admin: admin.brokers.update_config(BROKER, {"slaveReadEnable": "true"}),
    "brokers.consume_progress": lambda admin: admin.brokers.consume_progress(BROKER),
    "brokers.delete_expired_commit_log": lambda admin: admin.brokers.delete_expired_commit_log(BROKER),
    "brokers.clean_expired_consume_queue": lambda admin: admin.brokers.clean_expired_consume_queue(BROKER),
    "brokers.clean_unused_topic": lambda admin: admin.brokers.clean_unused_topic(BROKER),
    "brokers.transfer_leadership": lambda admin: admin.brokers.transfer_leadership(BROKER, "n1"),
    "brokers.scrub": lambda admin: admin.brokers.scrub(BROKER),
    "brokers.scrub_status": lambda admin: admin.brokers.scrub_status(BROKER),
    "brokers.repair_status": lambda admin: admin.brokers.repair_status(BROKER),
    "brokers.group_members": lambda admin: admin.brokers.group_members(BROKER),
    "brokers.add_member": lambda admin: admin.brokers.add_member(BROKER, "n1", "127.0.0.1:1"),
    "brokers.remove_member": lambda admin: admin.brokers.remove_member(BROKER, "n1"),
    "brokers.addresses": lambda admin: admin.brokers.addresses(CLUSTER),
    "brokers.leaders": lambda admin: admin.brokers.leaders(CLUSTER),
    "messages.by_offset_id": by_offset_id,
    "messages.by_key": lambda admin: admin.messages.by_key("T", "k1"),
    "messages.by_unique_key": lambda admin: admin.messages.by_unique_key("T", "k1"),
    "messages.traces": lambda admin: admin.messages.traces("k1", trace_topic="T"),
    "messages.queues": lambda admin: admin.messages.queues("T"),
    "messages.offset_by_time": lambda admin: admin.messages.offset_by_time(QUEUE, 0),
    "messages.bounds": lambda admin: admin.messages.bounds(QUEUE),
    "messages.by_offset": lambda admin: admin.messages.by_offset(QUEUE, 0),
    "messages.read": read,
    "messages.consume_queue_units": lambda admin: admin.messages.consume_queue_units(QUEUE, 0, 2),
    "messages.consume_directly": consume_directly,
    "messages.tracks": tracks,
    "messages.timers": lambda admin: admin.messages.timers(BROKER),
    "messages.timer_state": lambda admin: admin.messages.timer_state(BROKER, MSG_ID),
    "messages.pending_transactions": lambda admin: admin.messages.pending_transactions(BROKER),
    "messages.transaction_state": lambda admin: admin.messages.transaction_state(BROKER, MSG_ID),
    "messages.popped": lambda admin: admin.messages.popped(BROKER),
    "messages.resume_check": lambda admin: admin.messages.resume_check(BROKER, MSG_ID),
    "access.create_user": lambda admin: admin.access.create_user(BROKER, USER),
    "access.update_user": lambda admin: admin.access.update_user(BROKER, USER),
    "access.delete_user": lambda admin: admin.access.delete_user(BROKER, "u"),
    "access.users": lambda admin: admin.access.users(BROKER),
    "access.put_policy": lambda admin: admin.access.put_policy(BROKER, "User:u", "Custom", [ENTRY]),
    "access.delete_policy": lambda admin: admin.access.delete_policy(BROKER, "User:u", "Custom", None),
    "access.acls": lambda admin: admin.access.acls(BROKER),
    "access.audit": lambda admin: admin.access.audit(BROKER),
    "access.explain": lambda admin: admin.access.explain(BROKER, "u", 310, "Topic:T", None),
    "namesrv.config": lambda admin: admin.namesrv.config(),
    "namesrv.update_config": lambda admin: admin.namesrv.update_config("a", "b"),
    "namesrv.kv": lambda admin: admin.namesrv.kv("N", "a"),
    "namesrv.put_kv": lambda admin: admin.namesrv.put_kv("N", "a", "b"),
    "namesrv.delete_kv": lambda admin: admin.namesrv.delete_kv("N", "a"),
    "namesrv.wipe_write_perm": lambda admin: admin.namesrv.wipe_write_perm("golden-a"),
    "namesrv.add_write_perm": lambda admin: admin.namesrv.add_write_perm("golden-a"),
}
# A call that looks at a body tells of one that is nothing; these show what can be seen all the same.
SHOW_THE_REST = {"brokers.members", "brokers.day_counts", "groups.progress", "messages.tracks"}

# An answer without a body says that nothing was there to be changed.
MAY_BE_EMPTY = {"groups.reset_offsets", "groups.reset_queue_offset"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[AdminCluster]:
    """With a topic of two queues and two messages, a consumer and a producer."""
    made = AdminCluster(tmp_path / "store")

    async def fill() -> None:
        async with Admin(NAMESRV, connect=made.connect) as admin:
            await admin.topics.put(BROKER, TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))

    asyncio.run(fill())
    for _ in range(2):
        made.broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", properties="KEYS\x01k1\x02"), b"x")
    made.broker.ask(RequestCode.HEART_BEAT, body=heart_beat("c1"))
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": "0"}
    made.broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
    made.broker.run_for(1_000)
    made.register()
    for code in TOLD_BY_OTHERS:
        made.refuse[code] = (0, "")
    yield made
    made.close()


def test_every_call_is_tested() -> None:
    rooms = vars(Admin(NAMESRV)).items()
    there = {
        f"{name}.{method}"
        for name, room in rooms
        if not name.startswith("_") and name != "namesrv_addr"
        for method, _ in inspect.getmembers(room, inspect.ismethod)
        if not method.startswith("_")
    }
    assert there == CALLS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_hostile_answer_is_an_error_that_says_who_gave_it(cluster: AdminCluster, name: str) -> None:
    call = CALLS[name]
    answers: dict[int, tuple[dict[str, str], bytes]] = {}

    def note(code: int, answer: RemotingCommand) -> None:
        if code in TOLD_BY_OTHERS:
            answer.body = TOLD_BY_OTHERS[RequestCode(code)]
        answers[code] = (dict(answer.ext_fields), bytes(answer.body))

    async def work() -> None:
        async with Admin(NAMESRV, connect=cluster.connect) as admin:
            cluster.alter = note
            await end_of(admin, call)
            assert answers
            for code, (fields, body) in list(answers.items()):
                for hostile in NOT_JSON if body[:1] == b"{" else ():
                    error = await end_with(admin, code, fields, hostile)
                    if error is None:
                        assert name in SHOW_THE_REST or (name in MAY_BE_EMPTY and not hostile)
                    elif name not in SHOW_THE_REST:
                        told = f"{error}"
                        assert RequestCode(code).name in told
                        assert BROKER in told or NAMESRV in told
                        assert error.definite is (code in READS or name == "brokers.scrub_status")
                variants = [(changed, body) for changed in hostile_fields(fields)]
                variants += [(fields, changed) for changed in hostile_bodies(body)]
                for changed in Random(1).sample(variants, min(VARIANTS_MAX, len(variants))):
                    await end_with(admin, code, *changed)

    async def end_with(admin: Admin, code: int, fields: dict[str, str], body: bytes) -> AdminError | None:
        def alter(asked: int, answer: RemotingCommand) -> None:
            note(asked, answer)
            if asked == code:
                answer.ext_fields, answer.body = fields, body

        cluster.alter = alter
        return await end_of(admin, call)

    asyncio.run(work())


async def end_of(admin: Admin, call: Call) -> AdminError | None:
    """Whatever else it raises fails the test."""
    try:
        await call(admin)
    except AdminError as error:
        return error
    return None
