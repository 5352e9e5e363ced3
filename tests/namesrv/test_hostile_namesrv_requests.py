"""Requests with fields missing, of another type, huge, negative or unreadable, for every code that a NameServer serves:
one answer each. What is refused changes nothing, what it keeps is sound, and another broker's routes stay.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest
from hostile_values import flipped, hostile_bodies, hostile_fields

from namesrv.kv_config_manager import KVConfigManager
from namesrv.processor import NamesrvProcessor
from namesrv.route_info_manager import RouteInfoManager
from remoting.bodies.bodies import DataVersion
from remoting.bodies.topic_bodies import RegisterBrokerBody, TopicConfig, TopicConfigSerializeWrapper
from remoting.codes import MQ_VERSION, RequestCode, ResponseCode
from remoting.errors import RemotingProtocolError
from remoting.frame.command import RemotingCommand, request
from remoting.frame.connection import RemotingConnection

WIRE = Path(__file__).parent.parent / "golden" / "wire"
BROKER = {"brokerName": "b", "brokerAddr": "127.0.0.1:10911", "clusterName": "c", "brokerId": "0"}
REGISTER = {
    **BROKER,
    "haServerAddr": "127.0.0.1:10912",
    "heartbeatTimeoutMillis": "30000",
    "enableActingMaster": "false",
}
KV = {"namespace": "space", "key": "k"}
VERSION = DataVersion(timestamp=1, counter=1, state_version=1)


def tables(*topics: str) -> RegisterBrokerBody:
    configs = {
        topic: TopicConfig(topic_name=topic, attributes={"+message.type": "NORMAL"}) for topic in topics
    }
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=VERSION, topic_config_table=configs
        )
    )


TABLES = tables("T", "U")
SOUND: list[tuple[RequestCode, dict[str, str], bytes]] = [
    (RequestCode.PUT_KV_CONFIG, {**KV, "value": "v"}, b""),
    (RequestCode.GET_KV_CONFIG, KV, b""),
    (RequestCode.DELETE_KV_CONFIG, KV, b""),
    (RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "space"}, b""),
    (RequestCode.REGISTER_BROKER, {**REGISTER, "compressed": "false", "bodyCrc32": "0"}, TABLES.encode()),
    (RequestCode.REGISTER_BROKER, {**REGISTER, "compressed": "true"}, TABLES.encode_compressed()),
    (RequestCode.UNREGISTER_BROKER, BROKER, b""),
    (RequestCode.QUERY_DATA_VERSION, BROKER, VERSION.encode()),
    (RequestCode.BROKER_HEARTBEAT, BROKER, b""),
    (RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T", "acceptStandardJsonOnly": "true"}, b""),
    (RequestCode.GET_BROKER_CLUSTER_INFO, {}, b""),
    (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b"}, b""),
    (RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b"}, b""),
    (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}, b""),
    (RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "c"}, b""),
    (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "c"}, b""),
    (RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}, b""),
    (RequestCode.GET_UNIT_TOPIC_LIST, {}, b""),
    (RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, {}, b""),
    (RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}, b""),
    (RequestCode.GET_BROKER_MEMBER_GROUP, {"clusterName": "c", "brokerName": "b"}, b""),
    (RequestCode.GET_NAMESRV_CONFIG, {}, b""),
    (RequestCode.UPDATE_NAMESRV_CONFIG, {}, b""),
]


class Channel:
    def __init__(self, channel_id: int) -> None:
        self.id = channel_id
        self.remote_address = "127.0.0.1:1"
        self.attributes: dict[str, object] = {}
        self.answers: list[RemotingCommand] = []

    def write(self, data: bytes) -> None:
        self.answers += RemotingConnection().receive_data(data)


class Hostile:
    """A NameServer that knows a broker named witness, and is asked for all sorts of things."""

    def __init__(self) -> None:
        self.routes = RouteInfoManager()
        self.kv = KVConfigManager()
        self._processor = NamesrvProcessor(self.routes, self.kv, {"listenPort": "9876"}, lambda _: None)
        self._witness, self._channel = Channel(1), Channel(2)
        self._opaque = 0
        self._register_witness()
        self._before = self._witness_route()
        self.prepare()

    def prepare(self) -> None:
        """Again after each request that was fulfilled: it may have deleted something, or taken the broker's place."""
        self.routes.channel_closed(self._channel.id)
        for code, fields, body in (SOUND[0], SOUND[4]):
            assert self.ask(self.new(code, fields, body)).code == ResponseCode.SUCCESS

    def _register_witness(self) -> None:
        fields = {**REGISTER, "brokerName": "witness", "brokerAddr": "127.0.0.1:20911", "clusterName": "w"}
        command = self.new(RequestCode.REGISTER_BROKER, fields, tables("Witness", "Other").encode())
        assert self.ask(command, self._witness).code == ResponseCode.SUCCESS

    def _witness_route(self) -> object:
        answer = self.ask(self.new(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "Witness"}), self._witness)
        assert answer.code == ResponseCode.SUCCESS
        return bytes(answer.body)

    def new(
        self, code: int, fields: dict[str, str], body: bytes = b"", *, version: int = MQ_VERSION
    ) -> RemotingCommand:
        self._opaque += 1
        command = request(code, fields, body, opaque=self._opaque)
        command.version = version
        return command

    def ask(self, command: RemotingCommand, channel: Channel | None = None) -> RemotingCommand:
        channel = channel or self._channel
        self._processor.process(channel, [command], 1_000)
        (answer,) = channel.answers
        channel.answers = []
        assert answer.opaque == command.opaque
        return answer

    def receive(self, commands: list[RemotingCommand], channel: Channel) -> None:
        self._processor.process(channel, commands, 1_000)

    def kept(self) -> object:
        routes = self.routes
        tables = (routes.topic_queue_table, routes.broker_addr_table, routes.cluster_addr_table)
        return deepcopy((*tables, self.kv.config_table))

    def check(self) -> None:
        assert self._witness_route() == self._before
        for cluster, names in self.routes.cluster_addr_table.items():
            assert cluster.strip()
            assert all(name.strip() for name in names)
        for broker in self.routes.broker_addr_table.values():
            assert all(broker_id >= 0 and addr.strip() for broker_id, addr in broker.broker_addrs.items())
        for topic, queues in self.routes.topic_queue_table.items():
            assert topic.strip()
            for queue in queues.values():
                assert min(queue.read_queue_nums, queue.write_queue_nums) >= 0
                assert 0 <= queue.perm < 16


@pytest.fixture
def hostile() -> Hostile:
    return Hostile()


def spoiled(hostile: Hostile, code: int, fields: dict[str, str], body: bytes) -> Iterator[RemotingCommand]:
    for changed_fields in hostile_fields(fields):
        yield hostile.new(code, changed_fields, body)
    for changed_body in hostile_bodies(body):
        yield hostile.new(code, fields, changed_body)
        yield hostile.new(code, {**fields, "brokerAddr": "127.0.0.1:30911"}, changed_body)
    for version in (0, -1, MQ_VERSION + 1000, 1 << 30):
        yield hostile.new(code, fields, body, version=version)
    yield hostile.new(code, {}, body)


def test_the_table_has_every_code_that_is_served(hostile: Hostile) -> None:
    not_served = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    served = {code for code in RequestCode if hostile.ask(hostile.new(code, {})).code != not_served}
    assert served == {code for code, _, _ in SOUND}


@pytest.mark.slow
@pytest.mark.parametrize(("code", "fields", "body"), SOUND, ids=[row[0].name for row in SOUND])
def test_a_spoiled_request_is_answered_and_what_is_refused_changes_nothing(
    hostile: Hostile, code: int, fields: dict[str, str], body: bytes
) -> None:
    assert hostile.ask(hostile.new(code, fields, body)).code == ResponseCode.SUCCESS
    hostile.prepare()
    for command in spoiled(hostile, code, fields, body):
        before = hostile.kept()
        answer = hostile.ask(command)
        if answer.code == ResponseCode.SUCCESS:
            hostile.check()
            hostile.prepare()
        else:
            assert hostile.kept() == before, (command.ext_fields, bytes(command.body), answer.remark)
    hostile.check()


@pytest.mark.slow
def test_recorded_requests_with_flipped_bits_do_no_harm(hostile: Hostile) -> None:
    random = Random(1)
    frames = set()
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row.get("to", "").startswith("namesrv") and row["kind"] in ("request", "oneway"):
                    frames.add(b64decode(row["frame_b64"]))
    assert len(frames) > 1_000
    for number, frame in enumerate(sorted(frames)):
        channel = Channel(100 + number)
        for changed in (flipped(frame, random), flipped(flipped(frame, random), random)):
            try:
                commands = RemotingConnection().receive_data(changed)
            except RemotingProtocolError as error:
                commands = error.commands
            hostile.receive(commands, channel)
        hostile.routes.channel_closed(channel.id)
    hostile.check()
    assert set(hostile.routes.broker_addr_table) == {"witness", "b"}
