"""What a broker tells of itself, and settings changed while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import OneBroker, RecordingChannel, pull_fields, send_fields

from broker.broker_stats import BrokerStats
from broker.http.member_figures import member_info
from dledger.replica_status import replica_status
from message.message_id import decode_offset_message_id
from remoting.bodies.admin_bodies import BrokerStatsData
from remoting.bodies.bodies import KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import parse_properties
from remoting.fastjson import loads_fastjson
from remoting.frame.command import RemotingCommand


def settings(broker: OneBroker) -> dict[str, str]:
    text = bytes(broker.ask(RequestCode.GET_BROKER_CONFIG).body).decode()
    return {item.key: item.value for item in parse_properties(text, "answer")}


def update(broker: OneBroker, text: str, channel: RecordingChannel | None = None) -> RemotingCommand:
    return broker.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode(), channel)


def send(broker: OneBroker, count: int) -> None:
    for _ in range(count):
        answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"m")
        assert answer.code == ResponseCode.SUCCESS


def test_the_broker_tells_its_settings_but_not_its_secret(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "pyDLedgerClusterSecret=hush\nflushDiskType=ASYNC_FLUSH\n")
    shown = settings(broker)
    assert shown["brokerName"] == "golden-a"
    assert shown["flushDiskType"] == "ASYNC_FLUSH"
    assert shown["dLegerPeers"] == "n0-127.0.0.1:40911"
    assert "hush" not in str(shown)
    broker.close()


def test_runtime_information_has_what_tools_look_for(broker: OneBroker) -> None:
    broker.run_for(10_100)
    send(broker, 10)
    broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T"))
    broker.run_for(10_000)
    table = KVTable.decode(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert table["brokerActive"] == "true"
    assert table["role"] == "LEADER"
    assert [float(rate) > 0 for rate in table["putTps"].split()] == [True] * 3
    assert table["msgPutTotalTodayNow"] == table["msgGetTotalTodayNow"] == "10"
    assert int(table["earliestMessageTimeStamp"]) <= broker.now_ms
    assert int(table["commitLogMinOffset"]) < int(table["commitLogMaxOffset"])
    assert table["runtime"].startswith("[ 0 days, 0 hours, 0 minutes, 2")


def test_runtime_information_says_that_a_broker_is_open_against_its_conf(tmp_path: Path) -> None:
    broker = OneBroker(tmp_path, "aclEnable=true\npyDLedgerAllowOpen=true\n")
    table = KVTable.decode(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert "open to all" in table["openToAll"]
    assert "aclEnable=true has no effect" in table["openToAll"]
    broker.close()


def test_runtime_information_says_how_the_member_is(broker: OneBroker) -> None:
    send(broker, 1)
    table = KVTable.decode(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert (table["memberId"], table["leaderId"], table["voters"]) == ("n0", "n0", "n0")
    assert table["committedIndex"] == table["ledgerEndIndex"] == table["durableIndex"] != "-1"
    broker.step_down()
    table = KVTable.decode(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO).body).table
    assert table["leaderId"] == "none"


def test_of_a_member_only_what_is_not_as_it_should_be_has_a_key_of_its_own(broker: OneBroker) -> None:
    sound = replica_status(broker.replica)
    assert member_info(sound).keys() == {
        *("memberId", "leaderId", "voters"),
        *("ledgerBeginIndex", "ledgerEndIndex", "committedIndex", "durableIndex"),
    }
    troubled = {
        "doubted": True,
        "can_vote": False,
        "disk_obstacle": "no space",
        "election_obstacle": "vote of term 8: no answers",
        "faulty_ranges": [{"first_index": 7, "last_index": 9}, {"first_index": 20, "last_index": 20}],
        "learners": ["n3"],
        "waits_for": ["n1", "n2"],
    }
    told = member_info(sound | troubled)
    assert {name: told[name] for name in told.keys() - member_info(sound).keys()} == {
        "doubted": "true",
        "cannotVote": "true",
        "diskObstacle": "no space",
        "electionObstacle": "vote of term 8: no answers",
        "faultyEntries": "7..9 20..20",
        "learners": "n3",
        "waitsFor": "n1 n2",
    }


def test_totals_of_a_day_are_kept_at_midnight(broker: OneBroker) -> None:
    stats = broker.controller.stats
    broker.run_for(10_100)
    send(broker, 3)
    stats.tick(broker.now_ms + 10_000)
    stats.tick(broker.now_ms + 86_400_000)
    assert (stats.put_before, stats.put_at_midnight) == (0, 3)
    stats.tick(broker.now_ms + 2 * 86_400_000)
    assert (stats.put_before, stats.put_at_midnight) == (3, 3)


def test_counts_are_shown_by_name(broker: OneBroker) -> None:
    broker.run_for(10_100)
    send(broker, 6)
    broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T"))
    broker.run_for(10_000)
    for name, key in (
        ("TOPIC_PUT_NUMS", "T"),
        ("GROUP_GET_NUMS", "T@g"),
        ("BROKER_PUT_NUMS", "GoldenCluster"),
    ):
        answer = broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        shown = BrokerStatsData.decode(answer.body)
        assert (shown.stats_minute.sum, shown.stats_minute.avgpt) == (6, 1.0)
        # The broker was counted from its start on, ten seconds earlier.
        seconds = 20 if name == "BROKER_PUT_NUMS" else 10
        assert shown.stats_minute.tps == pytest.approx(6 / seconds, rel=0.1)
        assert shown.stats_day.sum == 6
    for name, key in (("TOPIC_PUT_NUMS", "none"), ("NONE", "T")):
        answer = broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"The stats <{name}> <{key}> not exist",
        )


def test_deleting_a_topic_or_a_group_forgets_its_counts(broker: OneBroker) -> None:
    broker.run_for(10_100)
    send(broker, 1)
    broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T"))
    broker.run_for(10_000)
    stats = broker.controller.stats
    assert (list(stats.put_nums), list(stats.get_nums)) == (["T"], ["T@g"])
    broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "g"})
    assert stats.get_nums == {}
    broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    assert stats.put_nums == {}


def test_the_part_in_replication_says_who_leads(broker: OneBroker) -> None:
    status = loads_fastjson(bytes(broker.ask(RequestCode.GET_BROKER_HA_STATUS).body))
    assert isinstance(status, dict)
    assert status["master"] is True


def test_a_setting_is_changed_while_the_broker_runs(broker: OneBroker) -> None:
    send(broker, 1)
    assert broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T")).code == ResponseCode.SUCCESS
    assert broker.controller.registration.is_due(broker.now_ms)
    before = broker.controller.registration.register_request()
    assert not broker.controller.registration.is_due(broker.now_ms)
    assert update(broker, "brokerPermission=2\nautoCreateTopicEnable=false\n").code == ResponseCode.SUCCESS
    assert settings(broker)["brokerPermission"] == "2"
    assert broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T")).code == ResponseCode.NO_PERMISSION
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("New"), b"m")
    assert answer.code == ResponseCode.TOPIC_NOT_EXIST
    assert broker.controller.registration.is_due(broker.now_ms), "NameServers must hear of the permission"
    after = broker.controller.registration.register_request()
    versions = [
        body["topicConfigSerializeWrapper"]["dataVersion"]
        for body in (loads_fastjson(bytes(command.body)) for command in (before, after))
        if isinstance(body, dict)
    ]
    assert versions[0] != versions[1], "they take topics by a new version alone"
    assert update(broker, "brokerPermission=6").code == ResponseCode.SUCCESS
    assert broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T")).code == ResponseCode.SUCCESS


def test_a_broker_that_is_closed_to_writes_takes_no_message_back(broker: OneBroker) -> None:
    sent = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"m")
    _, phy_offset = decode_offset_message_id(sent.ext_fields["msgId"])
    give_back = {"offset": str(phy_offset), "group": "g", "delayLevel": "0"}
    assert update(broker, "brokerPermission=4").code == ResponseCode.SUCCESS
    answer = broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, give_back)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert update(broker, "brokerPermission=6").code == ResponseCode.SUCCESS
    assert broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, give_back).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("listenPort=1", ResponseCode.INVALID_PARAMETER, "set it in the conf file and restart"),
        ("dLegerPeers=n0-1:1", ResponseCode.INVALID_PARAMETER, "set it in the conf file and restart"),
        (
            "aclEnable=true",
            ResponseCode.INVALID_PARAMETER,
            "aclEnable=true: this broker does not have that",
        ),
        ("fileReservedTime=-1", ResponseCode.INVALID_PARAMETER, "must be a whole number from 0"),
        ("nope=1", ResponseCode.INVALID_PARAMETER, "unknown key nope"),
        ("slaveReadEnable=perhaps", ResponseCode.INVALID_PARAMETER, "must be true or false"),
        ("brokerPermission=99", ResponseCode.INVALID_PARAMETER, "a whole number from 0 to 15"),
        ("brokerConfigPath=/x", ResponseCode.NO_PERMISSION, "Can not update config in black list."),
    ],
)
def test_settings_that_cannot_be_changed_say_why_and_nothing_is_changed(
    broker: OneBroker, text: str, code: int, remark: str
) -> None:
    before = settings(broker)
    answer = update(broker, f"longPollingEnable=false\n{text}\n")
    assert answer.code == code
    assert remark in (answer.remark or "")
    assert settings(broker) == before


def test_a_key_without_effect_here_is_accepted_and_said_to_have_none(broker: OneBroker) -> None:
    before = settings(broker)
    answer = update(broker, "flushDelayOffsetInterval=5000\nenablePopLog=true\naclEnable=false\n")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.remark == "without effect here: flushDelayOffsetInterval, enablePopLog, aclEnable"
    assert settings(broker) == before


def test_how_long_files_are_kept_can_be_changed(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(broker.store.retention.log, "configure", lambda *values: told.append(values))
    answer = update(broker, "fileReservedTime=24\ndeleteWhen=03;15\ndiskMaxUsedSpaceRatio=60\n")
    assert (answer.code, answer.remark or None) == (ResponseCode.SUCCESS, None)
    assert told == [(24 * 3_600_000, frozenset({3, 15}), 60)]
    assert settings(broker)["fileReservedTime"] == "24"


def test_settings_are_not_changed_from_another_machine(broker: OneBroker) -> None:
    answer = update(broker, "longPollingEnable=false", RecordingChannel(9, "192.0.2.7:50001"))
    assert answer.code == ResponseCode.NO_PERMISSION
    assert "access control" in (answer.remark or "")
    assert settings(broker)["longPollingEnable"] == "true"


def test_bytes_that_are_no_text_change_nothing(broker: OneBroker) -> None:
    answer = broker.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, b"\xff\xfe=1")
    assert answer.code == ResponseCode.INVALID_PARAMETER


class Queue:
    def __init__(self, topic: bytes, max_offset: int) -> None:
        self.topic = topic
        self.max_offset = max_offset


def test_queues_that_come_and_go_are_counted_by_what_they_took_meanwhile() -> None:
    a, b, c = Queue(b"A", 5), Queue(b"B", 7), Queue(b"C", 2)
    queues = [a, b]
    stats = BrokerStats(lambda: queues)
    stats.tick(0)
    b.max_offset = 9
    queues.append(c)
    stats.tick(10_000)
    assert {topic: item.value for topic, item in stats.put_nums.items()} == {"B": 2, "C": 2}
    queues.remove(a)
    c.max_offset = 3
    stats.tick(20_000)
    assert {topic: item.value for topic, item in stats.put_nums.items()} == {"B": 2, "C": 3}
    assert stats.put_total.value == 5
