import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop

from mqclient.errors import NoAnswerError, TopicUnknownError
from mqclient.message_queue import MessageQueue
from mqclient.route.route_table import RouteTable
from mqclient.route.topic_route import TopicRoute, topic_route_of
from remoting.bodies.bodies import BrokerData, QueueData, TopicRouteData
from remoting.errors import RemotingConnectError


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    uvloop.run(coroutine)


def route(topic: str, master: str = "m:1") -> TopicRoute:
    return TopicRoute(topic, {"b": {0: master}}, (), ())


class Namesrvs:
    """Answers by NameServer address: a route, None for an unknown topic, or an error."""

    def __init__(self, **answers: TopicRoute | Exception | None) -> None:
        self.answers = answers
        self.asked: list[str] = []
        self.was_asked = asyncio.Event()
        self.gate: asyncio.Event | None = None

    async def fetch(self, address: str, topic: str) -> TopicRoute | None:
        self.asked.append(address)
        self.was_asked.set()
        if self.gate is not None:
            await self.gate.wait()
        answer = self.answers[address]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def next_requests(self, count: int) -> None:
        wanted = len(self.asked) + count
        while len(self.asked) < wanted:
            self.was_asked.clear()
            await self.was_asked.wait()


def test_a_namesrv_that_is_down_or_knows_less_is_passed_over_and_asked_last_from_then_on() -> None:
    async def story() -> None:
        namesrvs = Namesrvs(one=NoAnswerError(RemotingConnectError("refused")), two=None, three=route("T"))
        table = RouteTable(["one", "two", "three"], namesrvs.fetch)
        assert (await table.route("T")).master_address("b") == "m:1"
        await table.refresh("T")
        assert namesrvs.asked == ["one", "two", "three", "three"]

    run(story())


def test_a_topic_that_none_knows_is_an_error_and_the_cached_route_stays() -> None:
    async def story() -> None:
        namesrvs = Namesrvs(one=route("T"), two=None)
        table = RouteTable(["one", "two"], namesrvs.fetch)
        await table.route("T")
        namesrvs.answers["one"] = None
        with pytest.raises(TopicUnknownError, match="not known"):
            await table.refresh("T")
        assert await table.route("T") == route("T")

    run(story())


def test_those_who_ask_at_one_time_share_one_request_and_one_who_leaves_does_not_end_it() -> None:
    async def story() -> None:
        namesrvs = Namesrvs(one=route("T"))
        namesrvs.gate = asyncio.Event()
        table = RouteTable(["one"], namesrvs.fetch)
        first, second = asyncio.create_task(table.route("T")), asyncio.create_task(table.refresh("T"))
        await namesrvs.was_asked.wait()
        first.cancel()
        namesrvs.gate.set()
        assert await second == route("T")
        assert namesrvs.asked == ["one"]

    run(story())


def test_a_change_is_told_once_and_no_change_not_at_all() -> None:
    async def story() -> None:
        told = []
        namesrvs = Namesrvs(one=route("T"))
        table = RouteTable(["one"], namesrvs.fetch, on_change=lambda now, before: told.append((now, before)))
        await table.refresh("T")
        await table.refresh("T")
        namesrvs.answers["one"] = route("T", "m:2")
        await table.refresh("T")
        assert told == [(route("T"), None), (route("T", "m:2"), route("T"))]

    run(story())


def test_queues_of_a_route_follow_permissions_and_masters() -> None:
    data = TopicRouteData(
        queue_datas=[
            QueueData(broker_name="b", read_queue_nums=2, write_queue_nums=1, perm=6),
            QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6),
            QueueData(broker_name="c", read_queue_nums=1, write_queue_nums=1, perm=4),
            QueueData(broker_name="d", read_queue_nums=1, write_queue_nums=1, perm=2),
        ],
        broker_datas=[
            BrokerData(cluster="C", broker_name="a", broker_addrs={1: "a:1"}),  # electing: no master
            BrokerData(cluster="C", broker_name="b", broker_addrs={0: "b:0", 2: "b:2"}),
            BrokerData(cluster="C", broker_name="c", broker_addrs={0: "c:0"}),
            BrokerData(cluster="C", broker_name="d", broker_addrs={0: "d:0"}),
        ],
    )
    made = topic_route_of("T", data)
    assert made.publish_queues == (MessageQueue("T", "b", 0), MessageQueue("T", "d", 0))
    assert made.subscribe_queues == tuple(
        MessageQueue("T", name, queue_id) for name, queue_id in (("a", 0), ("b", 0), ("b", 1), ("c", 0))
    )
    assert made.master_address("a") is None
    assert made.master_address("b") == "b:0"


def test_a_topic_that_is_gone_is_warned_of_once_until_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        namesrvs = Namesrvs(one=route("T"))
        table = RouteTable(["one"], namesrvs.fetch, poll_interval_s=0.0)
        await table.route("T")
        table.start_polling()
        for answer in (None, route("T"), None):
            namesrvs.answers["one"] = answer
            await namesrvs.next_requests(3)
        await table.close()

    run(story())
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "route poll failed topic=T reason=topic T is not known to the NameServer one"
    ] * 2


def test_topics_that_nobody_asks_for_are_forgotten_where_that_is_wanted() -> None:
    async def story() -> None:
        namesrvs = Namesrvs(one=route("T"))
        table = RouteTable(["one"], namesrvs.fetch, poll_interval_s=0.0, forget_after_s=0.0)
        await table.route("T")
        table.start_polling()
        while table.topics():  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0)
        assert table.cached("T") is None
        assert await table.route("T") == route("T")
        await table.close()

    run(story())


def test_a_topic_that_is_asked_for_is_kept_and_polled() -> None:
    async def story() -> None:
        namesrvs = Namesrvs(one=route("T"))
        table = RouteTable(["one"], namesrvs.fetch, poll_interval_s=0.0, forget_after_s=30.0)
        await table.route("T")
        table.start_polling()
        await namesrvs.next_requests(3)
        assert table.topics() == ["T"]
        await table.close()

    run(story())
