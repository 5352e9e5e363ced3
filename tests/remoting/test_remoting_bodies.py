"""Typed bodies against fastjson's own output, and the two forms of a register-broker body."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest

from remoting.bodies.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueue,
    ProducerData,
    QueueData,
    RemotingBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicList,
    TopicRouteData,
)
from remoting.bodies.topic_bodies import (
    INFLATED_SIZE_MAX,
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from remoting.codes import V4_9_5, V5_5_0
from remoting.errors import RemotingBodyError
from remoting.fastjson import VALUES_MAX, dumps_fastjson

VECTORS = Path(__file__).parent.parent / "golden" / "vectors" / "json_bodies.jsonl"


def outputs(kind: str) -> list[str]:
    rows = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    return [row["output"] for row in rows if row["kind"] == kind]


def vector_inputs(kind: str) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in VECTORS.read_text(encoding="utf-8").splitlines()]
    return [(row["input"], row["output"]) for row in rows if row["kind"] == kind]


ROUTE = TopicRouteData(
    queue_datas=[QueueData(broker_name="broker-a", read_queue_nums=4, write_queue_nums=4, perm=6)],
    broker_datas=[
        BrokerData(
            cluster="Cl",
            broker_name="broker-a",
            broker_addrs={0: "127.0.0.1:10911", 1: "127.0.0.1:10921"},
            enable_acting_master=False,
        )
    ],
)
HEARTBEAT = HeartbeatData(
    client_id="10.0.0.1@1#2",
    producer_data_set=[ProducerData(group_name="pg")],
    consumer_data_set=[
        ConsumerData(
            group_name="cg",
            subscription_data_set=[
                SubscriptionData(
                    topic="T",
                    sub_string="A || B",
                    tags_set=["A", "B"],
                    code_set=[65, 66],
                    sub_version=1_700_000_000_000,
                )
            ],
        )
    ],
    heartbeat_fingerprint=0,
    without_sub=False,
)
QUEUE = MessageQueue(topic="T", broker_name="b", queue_id=1)

# (vector, value)
CASES: list[tuple[str, RemotingBody]] = [
    ("TopicRouteData", ROUTE),
    ("HeartbeatData", HEARTBEAT),
    (
        "TopicConfig.json",
        TopicConfig(
            topic_name="T",
            read_queue_nums=4,
            write_queue_nums=8,
            topic_filter_type="MULTI_TAG",
            attributes={"message.type": "DELAY"},
        ),
    ),
    (
        "SubscriptionGroupConfig.json",
        SubscriptionGroupConfig(
            consume_message_orderly=False,
            group_retry_policy={"type": "CUSTOMIZED"},
            group_sys_flag=0,
            consume_timeout_minute=15,
            attributes={},
        ),
    ),
    ("DataVersion.json", DataVersion(timestamp=1_700_000_000_000, counter=3, state_version=0)),
    (
        "LockBatchRequestBody",
        LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=[QUEUE], only_this_broker=False),
    ),
    ("LockBatchResponseBody", LockBatchResponseBody(lock_ok_mq_set=[QUEUE])),
]


@pytest.mark.parametrize(("kind", "value"), CASES, ids=[kind for kind, _ in CASES])
def test_a_body_is_written_and_read_as_fastjson_does(kind: str, value: RemotingBody) -> None:
    (output,) = outputs(kind)
    assert value.encode() == output.encode()
    assert type(value).decode(output.encode()) == value


def test_a_route_has_quoted_broker_ids_for_readers_of_plain_json() -> None:
    (output,) = outputs("TopicRouteData-standard-json")
    assert ROUTE.encode_for(standard_json=True) == output.encode()
    assert ROUTE.encode_for(standard_json=False) == ROUTE.encode()
    assert TopicRouteData.decode(output.encode()) == ROUTE


def test_an_order_conf_stands_in_the_route_only_when_there_is_one() -> None:
    (output,) = outputs("TopicRouteData-order")
    ordered = TopicRouteData.decode(output.encode())
    assert ordered.order_topic_conf == "broker-a:4"
    assert ordered.encode() == output.encode()


def test_routes_that_fastjson_reads_are_read_alike() -> None:
    bare, quoted = (
        TopicRouteData.decode(text.encode()) for text, _ in vector_inputs("TopicRouteData-decode")
    )
    assert bare.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911", 1: "h:2"}
    assert quoted.broker_datas[0].broker_addrs == {0: "127.0.0.1:10911"}
    assert quoted.queue_datas == []


@pytest.mark.parametrize("output", [text for text in outputs("SubscriptionData") if text.startswith("{")])
def test_subscriptions_pass_through_unchanged(output: str) -> None:
    assert SubscriptionData.decode(output.encode()).encode() == output.encode()


@pytest.mark.parametrize("output", outputs("TopicConfig.encode"))
def test_topic_configs_in_text_form_pass_through_unchanged(output: str) -> None:
    assert TopicConfig.decode_text(output).encode_text() == output


@pytest.mark.parametrize(("text", "attributes"), [("", {}), (' {"a":"b"}', {"a": "b"})])
def test_the_attributes_of_a_text_form_may_be_missing(text: str, attributes: dict[str, str]) -> None:
    config = TopicConfig.decode_text("T 4 8 6 SINGLE_TAG" + text)
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (4, 8, 6)
    assert config.attributes == attributes


@pytest.mark.parametrize(
    "text", ["", "T", "T 4 8 6", "T four 8 6 SINGLE_TAG", "T 4 8 6 SINGLE_TAG {", "T 4 8 6 X [1]"]
)
def test_a_broken_text_form_is_a_body_error(text: str) -> None:
    with pytest.raises(RemotingBodyError):
        TopicConfig.decode_text(text)


def test_small_tables_are_written_as_java_does() -> None:
    assert KVTable(table={"k": "v"}).encode() == b'{"table":{"k":"v"}}'
    assert TopicList(topic_list=["A", "B"]).encode() == b'{"topicList":["A","B"]}'
    assert GetConsumerListByGroupResponseBody(consumer_id_list=["c"]).encode() == b'{"consumerIdList":["c"]}'
    assert ClusterInfo(
        broker_addr_table={"b": BrokerData(cluster="C", broker_name="b", broker_addrs={0: "h:1"})},
        cluster_addr_table={"C": ["b"]},
    ).encode() == (
        b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1"},"brokerName":"b","cluster":"C"}},'
        b'"clusterAddrTable":{"C":["b"]}}'
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"clientID":null}', b'{"clientID":"c","producerDataSet":[{}]}', b"{0:", b"\xff"],
)
def test_a_heartbeat_of_another_shape_is_a_body_error(body: bytes) -> None:
    with pytest.raises(RemotingBodyError):
        HeartbeatData.decode(body)


def test_nulls_count_as_left_out() -> None:
    heartbeat = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":null,"producerDataSet":[{"groupName":"p","x":null}]}'
    )
    assert heartbeat == HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="p")])


def test_a_queue_as_a_map_key_is_written_as_a_bean() -> None:
    table = KeyedByQueue(offset_table={QUEUE: 7})
    assert table.encode() == b'{"offsetTable":{{"brokerName":"b","queueId":1,"topic":"T"}:7}}'


class KeyedByQueue(RemotingBody):
    offset_table: dict[MessageQueue, int]


REGISTER = RegisterBrokerBody(
    topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
        data_version=DataVersion(timestamp=1, counter=2, state_version=3),
        topic_config_table={
            "T": TopicConfig(topic_name="T", attributes={"message.type": "FIFO"}),
            "标签": TopicConfig(topic_name="标签", perm=4, attributes={}),
        },
        topic_queue_mapping_info_map={},
    ),
    filter_server_list=["127.0.0.1:9"],
)


def test_a_register_body_is_the_same_in_both_forms() -> None:
    assert RegisterBrokerBody.decode(REGISTER.encode()) == REGISTER
    assert RegisterBrokerBody.decode_compressed(REGISTER.encode_compressed(), V5_5_0) == REGISTER


def test_the_compressed_form_is_pieces_with_their_lengths_in_a_zlib_stream() -> None:
    def piece(text: str) -> bytes:
        return len(text.encode()).to_bytes(4) + text.encode()

    assert zlib.decompress(REGISTER.encode_compressed()) == b"".join(
        (
            piece('{"counter":2,"stateVersion":3,"timestamp":1}'),
            (2).to_bytes(4),
            piece('T 16 16 6 SINGLE_TAG {"message.type":"FIFO"}'),
            piece("标签 16 16 4 SINGLE_TAG {}"),
            piece('["127.0.0.1:9"]'),
            (0).to_bytes(4),
        )
    )


def test_the_compressed_form_of_4_9_ends_before_the_mappings() -> None:
    old = REGISTER.encode_compressed(V4_9_5)
    decoded = RegisterBrokerBody.decode_compressed(old, V4_9_5).topic_config_serialize_wrapper
    assert decoded.topic_queue_mapping_info_map is None
    assert decoded.topic_config_table == REGISTER.topic_config_serialize_wrapper.topic_config_table
    with pytest.raises(RemotingBodyError):
        RegisterBrokerBody.decode_compressed(old, V5_5_0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        REGISTER.encode_compressed()[:-5],
        zlib.compress(b""),
        zlib.compress(b"\xff\xff\xff\xff"),
        zlib.compress(b"\x7f\xff\xff\xff{}"),
        zlib.compress(b'\x00\x00\x00\x1b{"counter":1,"timestamp":2}\x7f\xff\xff\xff'),
        zlib.compress(b'\x00\x00\x00\x1b{"counter":1,"timestamp":2}\x00\x00\x00\x01\x00\x00\x00\x01\xff'),
    ],
)
def test_a_broken_compressed_body_is_a_body_error(body: bytes) -> None:
    with pytest.raises(RemotingBodyError):
        RegisterBrokerBody.decode_compressed(body, V5_5_0)


@pytest.mark.slow
def test_a_compressed_body_that_inflates_without_end_is_refused() -> None:
    bomb = zlib.compress(bytes(INFLATED_SIZE_MAX + 1))
    assert len(bomb) < 100_000
    with pytest.raises(RemotingBodyError, match="longer than"):
        RegisterBrokerBody.decode_compressed(bomb, V5_5_0)


def test_the_body_crc_is_java_s_positive_crc32() -> None:
    assert body_crc32(b"123456789") == 0xCBF43926 & 0x7FFFFFFF


def test_a_body_without_json_form_cannot_be_written() -> None:
    with pytest.raises(RemotingBodyError):
        dumps_fastjson({"a": {1, 2}})


@pytest.mark.parametrize("text", ["9" * 5000, "CONSUME_SIDEWAYS"])
def test_an_enum_that_nobody_knows_is_the_default(text: str) -> None:
    data = b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeType":"%b"}]}' % text.encode()
    assert HeartbeatData.decode(data).consumer_data_set[0].consume_type == "CONSUME_PASSIVELY"


def test_a_number_without_end_is_a_body_error() -> None:
    with pytest.raises(RemotingBodyError, match="counter"):
        DataVersion.decode(b'{"timestamp":1,"counter":"1e999"}')


def test_a_body_of_too_many_values_is_not_read_tolerantly() -> None:
    """One by one in Python they would stop the event loop for seconds."""
    data = b'{"clientID":"c","consumerDataSet":[%b]}' % b",".join([b"{}"] * (VALUES_MAX + 1))
    with pytest.raises(RemotingBodyError, match=f"more than {VALUES_MAX} values"):
        HeartbeatData.decode(data)
