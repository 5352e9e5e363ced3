"""When a broker registers, and as what."""

from __future__ import annotations

from pathlib import Path

from one_broker import OneBroker, send_fields

from remoting import headers
from remoting.codes import RequestCode
from remoting.topic_bodies import RegisterBrokerBody, body_crc32


def test_only_a_serving_leader_is_the_master(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, elect=False)
    registration = broker.controller.registration
    assert registration.broker_id == 1
    broker.run_until(lambda: broker.store.serving)
    assert registration.broker_id == 0
    broker.step_down()
    assert registration.broker_id == 1
    broker.close()


def test_a_registration_tells_the_whole_table_and_the_term(broker: OneBroker) -> None:
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    command = broker.controller.registration.register_request()
    header = headers.decode(headers.RegisterBrokerRequestHeader, command.ext_fields)
    assert (header.broker_name, header.broker_addr, header.cluster_name, header.broker_id) == (
        "golden-a",
        "127.0.0.1:17911",
        "GoldenCluster",
        0,
    )
    assert header.body_crc32 == body_crc32(command.body)
    wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
    assert wrapper.data_version.state_version == broker.store.term
    assert {"T", "TBW102", "SELF_TEST_TOPIC"} <= wrapper.topic_config_table.keys()
    assert wrapper.topic_config_table["T"].write_queue_nums == 4


def test_a_broker_without_write_permission_registers_its_topics_so(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "brokerPermission=4\n")
    command = broker.controller.registration.register_request()
    wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
    assert {topic.perm for topic in wrapper.topic_config_table.values()} == {4}
    broker.close()


def test_it_is_due_at_start_each_period_and_when_topics_or_role_change(broker: OneBroker) -> None:
    registration = broker.controller.registration
    now_ms = broker.now_ms
    assert registration.is_due(now_ms)
    assert not registration.is_due(now_ms + 29_999)
    assert registration.is_due(now_ms + 30_000)
    broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    assert registration.is_due(now_ms + 30_001)
    assert not registration.is_due(now_ms + 30_002)
    broker.step_down()
    assert registration.is_due(now_ms + 30_003)


def test_leaving_names_the_member(broker: OneBroker) -> None:
    command = broker.controller.registration.unregister_request()
    header = headers.decode(headers.UnRegisterBrokerRequestHeader, command.ext_fields)
    assert (command.code, header.broker_addr, header.broker_id) == (
        RequestCode.UNREGISTER_BROKER,
        "127.0.0.1:17911",
        0,
    )
