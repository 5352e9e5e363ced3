"""RocketMQ's config/*.json become the tables that ours are."""

from pathlib import Path

import pytest
from golden_store import unpack_store

from disk.real_disk import RealDisk
from dledger.entry import Index
from store.errors import ConfigFilesDamagedError
from store.java.exports import ExportJob
from store.state.config_files import read_config_files
from store.state.state_tables import StateTables
from store.state.table_configs import DataVersion, SubscriptionGroupConfig, TopicConfig
from store.state.tables.message_request_mode_table import POP, PULL, SetMessageRequestMode
from store.state.tables.timer_table import TimerTable


def unpacked(name: str, tmp_path: Path) -> Path:
    """The root of a recorded store, of which config/ alone is there."""
    return unpack_store(name, tmp_path, lambda path: "/config/" in path)


def read(directory: Path) -> StateTables:
    return read_config_files(RealDisk(), str(directory))


def test_reads_what_5_5_0_wrote_as_a_member_of_a_group(tmp_path: Path) -> None:
    tables = read(unpacked("dledger-5.5.0-3nodes", tmp_path) / "n0" / "config")
    topics = tables.topic_config_table
    assert topics.data_version == DataVersion(10, 1795168794683)
    assert topics.get("StoreA") == TopicConfig("StoreA", 4, 4)
    assert topics.get("DledgerCluster") == TopicConfig("DledgerCluster", 16, 16, perm=7)
    assert tables.subscription_group_table.get("sg_cons") == SubscriptionGroupConfig("sg_cons")
    offsets = tables.consumer_offset_table
    assert offsets.queues_of("sg_cons", "StoreB") == {0: 316, 1: 314}
    assert offsets.query("sg_cons", "%RETRY%sg_cons", 0) == 44
    assert offsets.query("sg_cons", "StoreA", 0) == -1
    assert tables.delay_offset_table.offsets == {1: 50, 2: 3, 4: 0, 18: 0}


def test_reads_what_4_9_wrote_which_knows_fewer_fields(tmp_path: Path) -> None:
    tables = read(unpacked("single-4.9.5-clean", tmp_path) / "config")
    assert tables.topic_config_table.get("StoreA") == TopicConfig("StoreA", 4, 4)
    assert tables.subscription_group_table.get("sg_cons") == SubscriptionGroupConfig("sg_cons")
    assert tables.subscription_group_table.data_version == DataVersion(1, 1795169442318)
    assert tables.consumer_offset_table.queues_of("sg_cons", "StoreB") == {0: 180, 1: 180}
    assert tables.consumer_offset_table.data_version == DataVersion()
    assert tables.delay_offset_table.offsets == {1: 8, 2: 1}


def test_reads_by_which_mode_groups_are_to_consume(tmp_path: Path) -> None:
    """As 5.5.0 writes it."""
    (tmp_path / "messageRequestMode.json").write_text(
        '{\n\t"messageRequestModeMap":{\n\t\t"T":{\n\t\t\t"g":{\n\t\t\t\t"consumerGroup":"g",\n\t\t\t\t"mode":"POP",\n'
        '\t\t\t\t"popShareQueueNum":2,\n\t\t\t\t"topic":"T"\n\t\t\t}\n\t\t}\n\t}\n}'
    )
    modes = read(tmp_path).message_request_mode_table.modes
    assert modes == {("T", "g"): SetMessageRequestMode("T", "g", POP, 2)}


@pytest.mark.parametrize("body", ["[]", '{"mode":"PUSH"}', '{"mode":"POP","popShareQueueNum":"2"}'])
def test_a_mode_that_there_is_not_is_a_damaged_file(tmp_path: Path, body: str) -> None:
    (tmp_path / "messageRequestMode.json").write_text(f'{{"messageRequestModeMap":{{"T":{{"g":{body}}}}}}}')
    with pytest.raises(
        ConfigFilesDamagedError, match=r"messageRequestMode\.json: .* is no message request mode"
    ):
        read(tmp_path)


def test_reads_its_own_exports(tmp_path: Path) -> None:
    tables = read(unpacked("dledger-5.5.0-3nodes", tmp_path) / "n0" / "config")
    tables.subscription_group_table.forbidden = {"sg_cons": {"StoreA": 2}}
    modes = [
        SetMessageRequestMode("StoreA", "sg_cons", POP, -1),
        SetMessageRequestMode("StoreA", "g", PULL, 0),
    ]
    tables.message_request_mode_table.apply(modes, 7)
    tables.timer_table.unpack(TimerTable().pack())  # timercheck is not exported
    again = tmp_path / "again"
    ExportJob(RealDisk(), str(again), tables, Index(7), None).run()
    assert read(again).pack() == tables.pack()


def test_without_files_the_tables_are_empty(tmp_path: Path) -> None:
    assert read(tmp_path).pack() == StateTables().pack()


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"offsetTable":{"T@g":{0:', id="cut off"),
        pytest.param(b'{"dataVersion":{}}', id="another table"),
        pytest.param(b'{"offsetTable":{"T@g":{0:"one"}}}', id="no number"),
        pytest.param(b'{"offsetTable":{"T@g":7}}', id="no queues"),
        pytest.param(b"\xff\xfe", id="no text"),
    ],
)
def test_goes_on_from_the_backup_where_a_file_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "consumerOffset.json"
    path.write_bytes(content)
    (tmp_path / "consumerOffset.json.bak").write_bytes(b'{"offsetTable":{"T@g":{0:12,1:-1}}}')
    assert read(tmp_path).consumer_offset_table.offsets == {"T@g": {0: 12}}
    (tmp_path / "consumerOffset.json.bak").write_bytes(content)
    with pytest.raises(ConfigFilesDamagedError, match=r"consumerOffset\.json\.bak: .*another member"):
        read(tmp_path)


def test_goes_on_from_the_backup_where_a_crash_left_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "delayOffset.json.bak").write_bytes(b'{"offsetTable":{3:12}}')
    assert read(tmp_path).delay_offset_table.offsets == {3: 12}


@pytest.mark.parametrize(
    "content",
    [
        '{"topicConfigTable":{"T":{"perm":6}}}',
        '{"topicConfigTable":{"T":{"topicName":"T","perm":"6"}}}',
        '{"topicConfigTable":{"T":{"topicName":"T","order":1}}}',
        '{"topicConfigTable":{"T":[]}}',
        '{"dataVersion":{"counter":"x"},"topicConfigTable":{}}',
    ],
)
def test_a_topic_of_other_types_is_a_damaged_file(tmp_path: Path, content: str) -> None:
    (tmp_path / "topics.json").write_text(content)
    with pytest.raises(ConfigFilesDamagedError, match=r"topics\.json"):
        read(tmp_path)
