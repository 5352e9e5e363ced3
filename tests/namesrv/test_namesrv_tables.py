"""Lists and settings that tools ask a NameServer for."""

from __future__ import annotations

import pytest

from namesrv.kv_config_manager import KVConfigManager
from namesrv.processor import NamesrvProcessor
from namesrv.route_info_manager import Registration, RouteInfoManager
from remoting.bodies.bodies import DataVersion, QueueData, TopicList
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand, request
from remoting.frame.connection import RemotingConnection


class Channel:
    id = 1
    remote_address = "127.0.0.1:1"

    def __init__(self) -> None:
        self.attributes: dict[str, object] = {}
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data


def ask(code: int, body: bytes = b"", flags: dict[str, int] | None = None) -> RemotingCommand:
    """Of a NameServer that knows one broker with topics of these sysFlags."""
    routes = RouteInfoManager()
    topics = {
        name: QueueData(broker_name="b", read_queue_nums=4, write_queue_nums=4, perm=6, topic_sys_flag=flag)
        for name, flag in (flags or {"T": 0, "U": 0}).items()
    }
    version = DataVersion(timestamp=1, counter=1)
    routes.register_broker(Registration("C", "127.0.0.1:2", "b", 0, "", version, topics), 1, 0)
    channel = Channel()
    command = request(code, {}, body, opaque=1)
    NamesrvProcessor(routes, KVConfigManager(), {}, lambda _: None).process(channel, [command], 0)
    (answer,) = RemotingConnection().receive_data(channel.written)
    return answer


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (RequestCode.GET_UNIT_TOPIC_LIST, ["unit", "both"]),
        (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, ["sub", "both"]),
        (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, ["sub"]),
    ],
)
def test_topics_of_units_are_told_apart_by_their_flags(code: int, found: list[str]) -> None:
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    assert TopicList.decode(ask(code, flags=flags).body).topic_list == found


def test_system_topics_are_the_names_of_clusters_and_brokers() -> None:
    listed = TopicList.decode(ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body)
    assert (listed.topic_list, listed.broker_addr) == (["C", "b"], "127.0.0.1:2")


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        (b"listenPort=1", ResponseCode.INVALID_PARAMETER, "set it in the conf file and restart"),
        (b"enableTopicList=true", ResponseCode.SUCCESS, "without effect here: enableTopicList"),
        (b"nope=1", ResponseCode.INVALID_PARAMETER, "unknown key nope"),
        (b"kvConfigPath=/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
        (b"\xff", ResponseCode.INVALID_PARAMETER, "utf-8"),
    ],
)
def test_settings_of_a_running_nameserver_stay_as_they_are(text: bytes, code: int, remark: str) -> None:
    answer = ask(RequestCode.UPDATE_NAMESRV_CONFIG, text)
    assert answer.code == code
    assert remark in (answer.remark or "")
