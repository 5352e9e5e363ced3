"""When a broker registers, and as what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from one_broker import OneBroker, send_fields

from remoting.bodies.topic_bodies import RegisterBrokerBody, body_crc32
from remoting.codes import RequestCode
from remoting.headers import headers


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


def test_a_plain_brokers_starts_are_no_term(tmp_path: Path) -> None:
    for _ in range(3):
        broker = OneBroker(tmp_path, is_plain=True)
        command = broker.controller.registration.register_request()
        wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
        assert wrapper.data_version.state_version == 0
        broker.close()
    assert broker.store.term == 3


def test_only_a_leader_that_has_its_majority_confirms_its_registration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = OneBroker(tmp_path)
    confirmed: list[str] = []
    told: list[Callable[[str | None], None]] = []
    registration = broker.controller.registration
    with monkeypatch.context() as held:
        held.setattr(broker.store.read_index_waits, "ask", lambda on_done, now_ms: told.append(on_done))
        registration.confirm(lambda: confirmed.append("leads"), broker.now_ms)
        told[0]("no majority")
        assert confirmed == []
        told[0](None)
        assert confirmed == ["leads"]
        broker.step_down()
        told[0](None)
        assert confirmed == ["leads"], "it was replaced meanwhile"
    registration.confirm(lambda: confirmed.append("follows"), broker.now_ms)
    assert confirmed == ["leads", "follows"]
    command = registration.register_request(is_confirmed=True)
    assert headers.decode(headers.RegisterBrokerRequestHeader, command.ext_fields).confirmed
    broker.close()
