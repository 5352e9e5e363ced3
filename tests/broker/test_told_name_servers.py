"""What changes topics is answered when the NameServers know; one that is away keeps nobody waiting."""

from __future__ import annotations

from pathlib import Path

from one_broker import OneBroker
from test_send_message import CREATE

from broker.registration.told_name_servers import WAIT_MS, ToldNameServers
from remoting.bodies.admin_bodies import CreateTopicListRequestBody
from remoting.bodies.topic_bodies import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand


class Told(ToldNameServers):
    """Of NameServers a and b."""

    def __init__(self) -> None:
        self.now_ms = 1000
        super().__init__("ab", lambda: self.now_ms)
        self.asked = 0
        self.answers: list[str | None] = []
        self.ask_now = self._ask

    def _ask(self) -> None:
        self.asked += 1

    def change(self) -> int:
        self.changed()
        self.wait(self.answers.append)
        return self.newest_change


def test_the_answer_waits_until_all_have_acknowledged_what_has_the_change() -> None:
    told = Told()
    before = told.newest_change
    change = told.change()
    assert told.asked == 1
    told.answered("a", before, None)  # a registration that was under way
    told.answered("b", change, None)
    assert told.answers == []
    told.answered("a", change, None)
    assert told.answers == [None]


def test_one_that_is_away_is_named_and_not_waited_for() -> None:
    told = Told()
    told.answered("a", told.change(), None)
    told.answered("b", told.newest_change, "connection refused")
    assert told.answers == [
        "it is done, but not all NameServers know yet; they are told again until they do: b (connection refused)"
    ]
    told.answered("a", told.change(), None)
    assert len(told.answers) == 2
    change = told.change()
    told.answered("b", change, None)
    told.answered("a", change, None)
    assert told.answers[2] is None


def test_one_that_says_nothing_is_waited_for_once() -> None:
    told = Told()
    told.answered("a", told.change(), None)
    told.tick()
    assert told.answers == []
    told.now_ms += WAIT_MS
    told.tick()
    assert f"b (no answer within {WAIT_MS} ms)" in (told.answers[0] or "")
    told.answered("a", told.change(), None)
    assert len(told.answers) == 2


def test_without_name_servers_nobody_waits() -> None:
    answers: list[str | None] = []
    told = ToldNameServers((), lambda: 0)
    told.changed()
    told.wait(answers.append)
    assert answers == [None]


def test_requests_that_change_topics_are_answered_when_the_name_server_knows(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "namesrvAddr=127.0.0.1:9\n")
    name_servers = broker.controller.name_servers
    made = CreateTopicListRequestBody(topic_config_list=[TopicConfig(topic_name="L")]).encode()

    def answer_to(code: int, fields: dict[str, str], body: bytes = b"") -> RemotingCommand:
        before = name_servers.newest_change
        command = broker.new_request(code, fields, body)
        broker.receive([command])
        broker.run_until(lambda: name_servers.newest_change > before)
        assert broker.channel.response_to(command.opaque) is None
        name_servers.answered("127.0.0.1:9", name_servers.newest_change, None)
        answer = broker.channel.response_to(command.opaque)
        assert answer is not None
        return answer

    for code, fields, body in (
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {**CREATE, "topic": "T"}, b""),
        (RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, {}, made),
        (RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"}, b""),
        (RequestCode.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=4\n"),
    ):
        answer = answer_to(code, fields, body)
        assert (code, answer.code, answer.remark) == (code, ResponseCode.SUCCESS, None)
    broker.close()
