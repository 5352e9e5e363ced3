"""Which queues a client is to read and how: as RocketMQ shares them out, and as an operator has set it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hostile_requests import as_json
from one_broker import OneBroker, RecordingChannel, heart_beat
from pops import PopClient

from broker.registration.route_requests import OnRoute
from remoting.bodies.bodies import BrokerData, QueueData, TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

MESSAGE_QUEUE = {"brokerName": "golden-a", "queueId": -1, "topic": "T"}


class Assigning:
    """A broker whose topic T has four queues, and the clients of group g."""

    def __init__(self, broker: OneBroker, *client_ids: str) -> None:
        self.broker = broker
        PopClient(broker).send(b"0")
        for number, client_id in enumerate(client_ids):
            answer = broker.ask(
                RequestCode.HEART_BEAT, {}, heart_beat(client_id), RecordingChannel(10 + number)
            )
            assert answer.code == ResponseCode.SUCCESS

    def set_mode(self, mode: str = "POP", share: int = -1, **more: str) -> RemotingCommand:
        body = {"consumerGroup": "g", "mode": mode, "popShareQueueNum": share, "topic": "T", **more}
        return self.broker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, {}, as_json(body))

    def ask(self, client_id: str, **more: str) -> dict[str, list[dict[str, object]]]:
        body = {
            "clientId": client_id,
            "consumerGroup": "g",
            "messageModel": "CLUSTERING",
            "strategyName": "AVG",
            "topic": "T",
            **more,
        }
        answer = self.broker.ask(RequestCode.QUERY_ASSIGNMENT, {}, as_json(body))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        found: dict[str, list[dict[str, object]]] = json.loads(bytes(answer.body))
        return found

    def assigned(self, client_id: str, **more: str) -> list[tuple[str, object]]:
        """Mode and queue id of each."""
        assignments = self.ask(client_id, **more)["messageQueueAssignments"]
        return [(each["mode"], each["messageQueue"]["queueId"]) for each in assignments]  # type: ignore[index,misc]


def test_clients_pull_from_queues_of_their_own_unless_told_otherwise(broker: OneBroker) -> None:
    asking = Assigning(broker, "c1", "c2")
    assert asking.assigned("c1") == [("PULL", 0), ("PULL", 1)]
    assert asking.assigned("c2") == [("PULL", 2), ("PULL", 3)]
    assert asking.assigned("c2", strategyName="AVG_BY_CIRCLE") == [("PULL", 1), ("PULL", 3)]
    assert asking.assigned("c2", messageModel="BROADCASTING") == [("PULL", n) for n in range(4)]
    assert asking.assigned("stranger") == []


@pytest.mark.parametrize(
    "unknown", [{"topic": "U"}, {"consumerGroup": "nobody"}, {"strategyName": "CONFIG"}], ids=str
)
def test_what_cannot_be_said_leaves_the_client_as_it_is(broker: OneBroker, unknown: dict[str, str]) -> None:
    assert Assigning(broker, "c1").ask("c1", **unknown) == {}


def test_an_operator_turns_a_group_to_pops_and_back(broker: OneBroker) -> None:
    asking = Assigning(broker, "c1", "c2")
    assert asking.set_mode().code == ResponseCode.SUCCESS
    assert asking.ask("c1") == {"messageQueueAssignments": [{"messageQueue": MESSAGE_QUEUE, "mode": "POP"}]}
    assert asking.assigned("c1", topic="%RETRY%g", consumerGroup="g") == [("PULL", 0)]
    answer = broker.ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
    told = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": -1, "topic": "T"}
    assert json.loads(bytes(answer.body)) == {"messageRequestModeMap": {"T": {"g": told}}}
    assert asking.set_mode("PULL").code == ResponseCode.SUCCESS
    assert asking.assigned("c1") == [("PULL", 0), ("PULL", 1)]


def test_clients_that_pop_may_share_with_some_of_the_others(broker: OneBroker) -> None:
    asking = Assigning(broker, "c1", "c2", "c3", "c4")
    asking.set_mode(share=1)
    assert asking.assigned("c1") == [("POP", 0), ("POP", 1)]
    assert asking.assigned("c4") == [("POP", 3), ("POP", 0)]
    asking.set_mode(share=3)
    assert asking.assigned("c1") == [("POP", -1)]


def test_no_client_is_without_a_queue_where_there_are_more_clients_than_queues(broker: OneBroker) -> None:
    asking = Assigning(broker, *(f"c{number}" for number in range(6)))
    asking.set_mode(share=1)
    assert [asking.assigned(f"c{number}") for number in range(6)] == [
        [("POP", number % 4)] for number in range(6)
    ]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"topic": "%RETRY%g"}, ResponseCode.NO_PERMISSION),
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"consumerGroup": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_a_mode_of_nothing_is_refused(broker: OneBroker, more: dict[str, str], code: int) -> None:
    asking = Assigning(broker, "c1")
    assert asking.set_mode(**more).code == code
    assert broker.store.tables.message_request_mode_table.modes == {}


def test_a_mode_goes_with_its_topic_and_its_group(broker: OneBroker) -> None:
    asking = Assigning(broker, "c1")
    modes = broker.store.tables.message_request_mode_table
    for deletion in (
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"}),
    ):
        PopClient(broker).send(b"0")
        assert asking.set_mode().code == ResponseCode.SUCCESS
        assert len(modes.modes) == 1
        assert broker.ask(*deletion).code == ResponseCode.SUCCESS
        assert modes.modes == {}


def test_a_mode_survives_a_restart(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path)
    Assigning(broker, "c1").set_mode()
    broker.close(clean=True)
    again = OneBroker(tmp_path, now_ms=broker.now_ms)
    assert len(again.store.tables.message_request_mode_table.modes) == 1


def test_queues_are_those_of_all_brokers_that_the_route_names(broker: OneBroker) -> None:
    asking = Assigning(broker, "c1")
    queues = [
        QueueData(broker_name=name, read_queue_nums=nums, write_queue_nums=nums, perm=perm)
        for name, nums, perm in (("b", 2, 6), ("a", 1, 6), ("closed", 4, 2))
    ]
    route = TopicRouteData(
        queue_datas=queues, broker_datas=[BrokerData(cluster="c", broker_name="a", broker_addrs={0: "x:1"})]
    )

    def ask_route(topic: str, on_route: OnRoute) -> None:
        on_route(route if topic == "T" else None)

    broker.controller._assignments._ask_route = ask_route
    assert asking.assigned("c1") == [("PULL", 0), ("PULL", 0), ("PULL", 1)]
    assert asking.ask("c1", topic="U") == {}
    asking.set_mode()
    found = [each["messageQueue"] for each in asking.ask("c1")["messageQueueAssignments"]]
    assert found == [{**MESSAGE_QUEUE, "brokerName": name} for name in ("a", "b")]
