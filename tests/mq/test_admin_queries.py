"""Messages and clients by `mq admin`: what became of a message, and what each client does."""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from admin_cluster import BROKER, FOLLOWER, NAMESRV, AdminCluster, asked_cluster, in_one_line, run
from one_broker import RecordingChannel, heart_beat, send_fields

from message.batch import BatchMessage, encode_batch
from message.decoder import MessageExt
from mqclient import Admin, AdminError, MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import response


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminCluster]:
    with asked_cluster(tmp_path, monkeypatch) as made:
        yield made


def test_a_message_is_found_by_each_of_its_ids_with_what_became_of_it(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run("queryMsgByKey", "-t", "T", "-k", "k1", "--json")
    [line] = json.loads(capsys.readouterr().out)
    run("queryMsgByUniqueKey", "-t", "T", "-i", line["msg_id"], "--json")
    [message] = json.loads(capsys.readouterr().out).values()
    assert (message["body"], message["queue"], message["queue_offset"]) == ("three", 1, 0)
    assert message["groups"] == {"g": "NOT_CONSUME_YET"}
    run("skipAccumulatedMessage", "-g", "g", "-t", "T")
    capsys.readouterr()
    run("queryMsgById", "-t", "T", "-i", message["offset_msg_id"], "--json")
    [again] = json.loads(capsys.readouterr().out).values()
    assert again == {**message, "groups": {"g": "CONSUMED"}}
    run("queryMsgById", "-t", "T", "-i", message["offset_msg_id"], "-s", "true", "--json")
    [sent] = json.loads(capsys.readouterr().out)
    assert sent["sent"] == message["offset_msg_id"]
    assert cluster.broker.store.reads.max_offset("T", 0) + cluster.broker.store.reads.max_offset("T", 1) == 4


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_message_is_found_when_the_member_that_took_it_in_has_died(
    cluster: AdminCluster, forgotten: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run("queryMsgByOffset", "-t", "T", "-b", "golden-a", "-i", "0", "-o", "0", "--json")
    message = json.loads(capsys.readouterr().out)
    cluster.register_follower()
    if forgotten:
        cluster.unregister_leader()
    cluster.broker_address = FOLLOWER
    found = asyncio.run(by_offset_id(message["offset_msg_id"]))
    assert (found.body, found.store_host) == (b"one", BROKER)


def test_messages_of_an_inner_batch_are_shown_one_by_one_with_offsets_and_tags_of_their_own(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    run("updateTopic", "-t", "B", "-r", "1", "-w", "1", "-a", "+queue.type=BatchCQ")
    batch = encode_batch(BatchMessage(0, b"m%d" % n, b"TAGS\x01%d\x02" % n) for n in range(3))
    cluster.broker.ask(RequestCode.SEND_BATCH_MESSAGE, send_fields("B", m="true"), batch)
    cluster.register()
    capsys.readouterr()
    run("queryMsgByOffset", "-t", "B", "-b", "golden-a", "-i", "0", "-o", "1", "--json")
    message = json.loads(capsys.readouterr().out)
    assert (message["queue_offset"], message["body"]) == (1, "m1")
    run("printMsg", "-t", "B", "-s", "2", "--json")
    assert [message["body"] for message in json.loads(capsys.readouterr().out)] == ["m2"]


async def by_offset_id(msg_id: str) -> MessageExt:
    async with Admin(NAMESRV) as admin:
        return await admin.messages.by_offset_id("T", msg_id)


def test_a_message_that_was_traced_tells_who_sent_and_who_consumed_it(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = "Pub 1700000000000 R p T C0FFEE A k 127.0.0.1:1 4 12 0 0A true 10.0.0.1".replace(" ", "\x01")
    other = sent.replace("C0FFEE", "DECAF")
    consumed = "SubAfter r C0FFEE 3 false k 0 1700000000500 g".replace(" ", "\x01")
    body = f"{other}\x02Unknown\x01line\x02{consumed}\x02{sent}\x02"
    run("updateTopic", "-t", "Traces", "-r", "1", "-w", "1")
    run("sendMessage", "-t", "Traces", "-p", body, "-k", "C0FFEE DECAF")
    cluster.broker.run_for(1_000)
    capsys.readouterr()
    run("queryMsgTraceById", "-i", "C0FFEE", "-t", "Traces", "--json")
    first, second = json.loads(capsys.readouterr().out)
    assert list(first.values()) == ["Pub", "p", "10.0.0.1", 1_700_000_000_000, 12, True]
    assert (second["type"], second["group"], second["time_ms"]) == ("Sub", "g", 1_700_000_000_500)
    assert (second["cost_millis"], second["success"]) == (3, False)
    with pytest.raises(SystemExit):
        run("queryMsgTraceById", "-i", "BAD", "-t", "Traces")
    assert "unless tracing is enabled" in capsys.readouterr().err


class AnsweringClient(RecordingChannel):
    """A consumer's end that says what it does when the broker asks."""

    def __init__(self, cluster: AdminCluster, tags: str) -> None:
        super().__init__(99, "127.0.0.1:59999")
        self._cluster = cluster
        queue = b'{"brokerName":"golden-a","queueId":1,"topic":"T"}'
        subscription = b'{"subString":"%s","topic":"T"}' % tags.encode()
        self._info = b'{"mqTable":{%s:{"cachedMsgCount":7,"commitOffset":0}},"subscriptionSet":[%s]}' % (
            queue,
            subscription,
        )

    def write(self, data: bytes) -> None:
        super().write(data)
        for asked in [
            command for command in self.received if command.code == 307 and not command.is_response
        ]:
            self.received.remove(asked)
            answer = response(asked, body=self._info)
            self._cluster.broker.later(partial(self._cluster.broker.receive, [answer], self))


def test_each_client_tells_what_it_does_and_differing_subscriptions_are_warned_of(
    cluster: AdminCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = AnsweringClient(cluster, "A"), AnsweringClient(cluster, "B")
    second.id, second.remote_address = 98, "127.0.0.1:59998"
    cluster.broker.ask(RequestCode.HEART_BEAT, body=heart_beat("one", group="h"), channel=first)
    capsys.readouterr()
    run("consumerStatus", "-g", "h")
    assert "all subscribe the same" in capsys.readouterr().out
    cluster.broker.ask(RequestCode.HEART_BEAT, body=heart_beat("two", group="h"), channel=second)
    run("consumerStatus", "-g", "h")
    shown = in_one_line(capsys.readouterr().out)
    assert "CLIENT QUEUES CACHED one 1 7 two 1 7 WARNING: they do not subscribe the same" in shown
    run("consumerStatus", "-g", "h", "-i", "two", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["mqTable"] == {"T golden-a 1": {"cachedMsgCount": 7, "commitOffset": 0}}
    run("consumerProgress", "-g", "h", "-t", "T", "-s", "true", "--json")
    clients = [row["client"] for row in json.loads(capsys.readouterr().out)]
    assert clients == [None, "two"]


def test_a_message_that_a_busy_broker_does_not_look_for_is_not_told_to_be_missing(
    cluster: AdminCluster,
) -> None:
    cluster.refuse[RequestCode.VIEW_MESSAGE_BY_ID] = (ResponseCode.SYSTEM_BUSY, "busy")

    async def work() -> None:
        async with Admin(NAMESRV) as admin:
            message = await admin.messages.by_offset(MessageQueue("T", "golden-a", 0), 0)
            with pytest.raises(AdminError) as caught:
                await admin.messages.by_offset_id("T", message.msg_id)
        assert (caught.value.code, caught.value.retriable) == (ResponseCode.SYSTEM_BUSY, True)

    asyncio.run(work())
