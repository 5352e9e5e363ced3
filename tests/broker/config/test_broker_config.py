"""A broker's conf file as a whole."""

import socket
from pathlib import Path

import pytest

from broker.config.access_settings import ACCESS_SETTINGS
from broker.config.broker_config import BrokerConfig, FlushDiskType
from broker.config.broker_settings import BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS
from broker.config.component_configs import dledger_config, store_config
from broker.config.config_file import load_broker_config, read_broker_config, shown_settings
from broker.config.message_limits import body_size_max
from dledger.entry import ENTRY_HEADER_SIZE
from message.encoder import record_size
from namesrv.namesrv_config import NAMESRV_SETTINGS
from remoting.address import Address
from remoting.configuration import ConfigError, format_properties, parse_properties
from remoting.frame.connection import FRAME_SIZE_MAX

ROOT = Path(__file__).parents[3]
MINIMUM = """
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
dLegerSelfId=n1
storePathRootDir=/tmp/store
namesrvAddr=127.0.0.1:9876
"""


def read(extra: str = "") -> tuple[BrokerConfig, list[str]]:
    return read_broker_config(parse_properties(MINIMUM + extra, "broker.conf"), "broker.conf")


def test_a_minimal_conf_has_rocketmqs_defaults() -> None:
    config, warnings = read()
    assert warnings == []
    assert config.broker_name == "RaftNode00"
    assert config.broker_addr == "127.0.0.1:10911"
    assert config.dledger is not None
    assert config.dledger.member_number == 1
    assert config.dledger.peers["n2"] == Address("127.0.0.1", 40913)
    assert config.store.mapped_file_size_commit_log == 1 << 30
    assert config.default_topic_queue_nums == 8


def test_an_ack_means_synced_unless_the_conf_says_otherwise() -> None:
    assert read()[0].store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert read("flushDiskType=ASYNC_FLUSH")[0].store.flush_disk_type is FlushDiskType.ASYNC_FLUSH


def test_both_spellings_of_the_file_size_count() -> None:
    assert read("mapedFileSizeCommitLog=16777216")[0].store.mapped_file_size_commit_log == 16777216
    assert read("mappedFileSizeCommitLog=16777216")[0].store.mapped_file_size_commit_log == 16777216


def test_retention_is_rocketmqs() -> None:
    store = store_config(read()[0])
    assert (store.file_reserved_time_ms, store.delete_when) == (72 * 3_600_000, frozenset({4}))
    assert store.disk_max_used_space_ratio == 75
    store = store_config(read("fileReservedTime=1\ndeleteWhen=03;15\ndiskMaxUsedSpaceRatio=60")[0])
    assert (store.file_reserved_time_ms, store.delete_when) == (3_600_000, frozenset({3, 15}))
    assert store.disk_max_used_space_ratio == 60


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("24", ()),
        ("", ()),
        ("4,5", ()),
        ("night", ()),
        ("-1", ()),
        ("24;3", (3,)),
        ("04;", (4,)),
        ("3; 23", (3, 23)),
    ],
)
def test_hours_that_are_none_never_come(text: str, hours: tuple[int, ...]) -> None:
    config, _ = read(f"deleteWhen={text}")
    assert store_config(config).delete_when == frozenset(hours)


def test_leaders_may_be_preferred_in_an_order() -> None:
    config, _ = read("preferredLeaderId=n2; n0")
    assert config.dledger.preferred_leader_ids == ("n2", "n0")
    assert dledger_config(config).member_config.preferred_leader_ids == ("n2", "n0")
    assert shown_settings(config)["preferredLeaderId"] == "n2;n0"


def test_a_preferred_leader_that_is_no_member_is_left_out_with_a_warning() -> None:
    config, warnings = read("preferredLeaderId=n9;n1")
    assert config.dledger.preferred_leader_ids == ("n1",)
    assert warnings == ["broker.conf: preferredLeaderId names n9, not in dLegerPeers: left out"]


def test_peers_can_be_dialled_elsewhere() -> None:
    config, _ = read("pyDLedgerPeerDial=n0=127.0.0.1:7001;n2=127.0.0.1:7002")
    assert config.dledger.peer_dial == {"n0": Address("127.0.0.1", 7001), "n2": Address("127.0.0.1", 7002)}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dLegerSelfId=n7", "dLegerSelfId=n7 is not in dLegerPeers"),
        ("storeType=defaultRocksDB", "RocksDB stores are not supported"),
        ("enableControllerMode=true", "controller mode is not supported"),
        ("maxIndexNum=200000000", "makes IndexFiles of 4020000040 bytes"),
        ("pyDLedgerPeerDial=n9=127.0.0.1:1", "pyDLedgerPeerDial names n9"),
        ("dLegerPeers=n0:127.0.0.1", "dLegerPeers="),
        ("dLegerPeers=n0@127.0.0.1:1", "'n0@127.0.0.1:1' does not begin with an id and a hyphen"),
        ("maxMessageSize=16777216", "whole number from 1 to 16711680 bytes"),
        (
            "maxMessageSize=4194304\nmapedFileSizeCommitLog=4194304",
            "maxMessageSize=4194304 is more than 4161110, which is the most with mapedFileSizeCommitLog=4194304",
        ),
        ("listenPort=20910\npyDLedgerHttpPort=20910", "listenPort and pyDLedgerHttpPort are both 20910"),
        (
            "dLegerPeers=n1-127.0.0.1:20915\nlistenPort=20915",
            "listenPort and dLegerPeers of n1 are both 20915",
        ),
        ("dLegerPeers=n0-10.0.0.1:1;n1-10.0.0.2:1", "n0-10.0.0.1:1 is beyond this machine"),
        ("dLegerPeers=n0-0.0.0.0:1;n1-127.0.0.1:1", "0.0.0.0 is all addresses of a machine"),
        ("brokerIP1=0.0.0.0", "0.0.0.0 is all addresses of a machine, and nobody can dial it"),
        ("brokerIP1=::", ":: is all addresses of a machine, and nobody can dial it"),
        ("brokerIP1=224.0.0.1", "224.0.0.1 is a multicast address"),
        ("brokerIP1=", "the host is missing"),
        ("namesrvAddr=127.0.0.1:1,127.0.0.1:2", "must be host:port, several joined by ; ('127.0.0.1:1,127"),
        ("namesrvAddr=http://127.0.0.1:1", "begins with http://"),
        ("namesrvAddr=127.0.0.1;127.0.0.1:1", "'127.0.0.1' has no port"),
        ("namesrvAddr=127.0.0.1:1 127.0.0.1:2", "holds a blank"),
    ],
)
def test_what_cannot_work_is_refused_at_start(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"broker\.conf.*") as caught:
        read(line)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "field", "taken"),
    [
        ("diskMaxUsedSpaceRatio=99", "disk_max_used_space_ratio", 95),
        ("diskMaxUsedSpaceRatio=0.75", "disk_max_used_space_ratio", 75),
        ("accessMessageInMemoryMaxRatio=0.4", "access_message_in_memory_max_ratio", 40),
        ("mappedFileSizeConsumeQueue=6000001", "mapped_file_size_consume_queue", 6000020),
        ("mapedFileSizeConsumeQueue=6000001", "mapped_file_size_consume_queue", 6000020),
        ("mapperFileSizeBatchConsumeQueue=47", "mapper_file_size_batch_consume_queue", 92),
        ("mapedFileSizeCommitLog=1G", "mapped_file_size_commit_log", 1 << 30),
        ("maxTransferCountOnMessageInMemory=20000", "max_transfer_count_on_message_in_memory", 4096),
        ("maxMessageSize=4m", "max_message_size", 4 << 20),
        ("fileReservedTime=-1", "file_reserved_time_hours", 0),
        ("flushDiskType=FAST", "flush_disk_type", FlushDiskType.SYNC_FLUSH),
        ("shortPollingTimeMills=0", "short_polling_time_ms", 1),
        ("autoCreateTopicEnable=", "auto_create_topic_enable", False),
        ("traceOn=yes", "trace_on", False),
        ("listenPort=1o911", "listen_port", 10911),
        ("registerNameServerPeriod=1000", "register_name_server_period_ms", 10_000),
        ("serverChannelMaxIdleTimeSeconds=-1", "server_channel_max_idle_time_seconds", 0),
        ("brokerPermission=22", "broker_permission", 6),
        ("brokerPermission=rw", "broker_permission", 6),
        ("brokerRole=MASTER", "broker_role", None),
    ],
)
def test_what_rocketmq_clamps_rounds_or_ignores_is_one_warning(line: str, field: str, taken: object) -> None:
    config, warnings = read(line)
    assert getattr(config.store, field, getattr(config, field, None)) == taken
    key, _, value = line.partition("=")
    assert len(warnings) == 1
    assert warnings[0].startswith(f"broker.conf:8: {key}={value!r} is not ")
    shown = shown_settings(config).get(key)
    assert warnings[0].endswith("it is ignored" if shown is None else f": {shown} is taken")


def test_a_commit_log_file_may_be_of_any_size() -> None:
    config, warnings = read("mapedFileSizeCommitLog=1000000")
    assert warnings == []
    assert dledger_config(config).data_file_size == 1_000_000


@pytest.mark.parametrize(
    "line",
    [
        "aclEnable=true",
        "migrateAuthFromV1Enabled=yes",
        "tlsMode=enforcing",
        "tlsEnable=true",
    ],
)
def test_a_security_switch_stops_the_start_unless_the_broker_may_be_open(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(line)
    text = str(caught.value)
    assert text.startswith(f"broker.conf:8: {line} asks for")
    assert "this broker would be open to all" in text
    assert "Set pyDLedgerAllowOpen=true" in text
    config, _ = read(f"{line}\npyDLedgerAllowOpen=true")
    assert config.open_switches == (line,)


@pytest.mark.parametrize(
    "line", ["aclEnable=false", "tlsMode=permissive", "tlsEnable=", "aclEnable=true\naclEnable=false"]
)
def test_a_security_switch_that_is_off_is_none(line: str) -> None:
    assert read(line)[0].open_switches == ()


def test_a_missing_key_names_what_stands_in_its_place() -> None:
    with pytest.raises(
        ConfigError, match=r"dLegerGroup is missing.*; line 2 has dLedgerGroup: write dLegerGroup"
    ):
        read_broker_config(
            parse_properties("enableDLegerCommitLog=true\ndLedgerGroup=G", "broker.conf"), "broker.conf"
        )


@pytest.mark.parametrize("line", ["dLedgerGroup=G", "enableDLedgerCommitLog=true"])
def test_a_misspelt_key_of_a_group_makes_no_plain_broker(line: str) -> None:
    with pytest.raises(ConfigError, match="is for a member of a DLedger group"):
        read_broker_config(parse_properties(PLAIN + line, "b.conf"), "b.conf")


def test_small_data_files_lower_the_largest_message_where_nobody_has_set_it() -> None:
    config, warnings = read("mapedFileSizeCommitLog=1048576")
    assert not warnings
    assert config.store.max_message_size == store_config(config).max_message_size == 1_015_382
    assert shown_settings(config)["maxMessageSize"] == "1015382"


@pytest.mark.parametrize("file_size", [1 << 20, 1 << 24, 1 << 26, 1 << 30])
def test_the_largest_message_fits_into_a_data_file_and_a_frame_with_all_that_it_may_get(
    file_size: int,
) -> None:
    """Tried again it has a longer topic, and more properties."""
    config, _ = read(f"mapedFileSizeCommitLog={file_size}\nmaxMessageSize={body_size_max(file_size)}")
    record = record_size(255, 32_767, config.store.max_message_size, v2=True, born_v6=True, store_v6=True)
    assert record + ENTRY_HEADER_SIZE <= dledger_config(config).log_config.entry_size_max
    assert record + 16_384 <= FRAME_SIZE_MAX
    with pytest.raises(ConfigError, match="maxMessageSize"):
        read(f"mapedFileSizeCommitLog={file_size}\nmaxMessageSize={body_size_max(file_size) + 1}")


def test_a_missing_group_is_named() -> None:
    with pytest.raises(ConfigError, match="dLegerGroup is missing"):
        read_broker_config(
            parse_properties("enableDLegerCommitLog=true\ndLegerSelfId=n0", "broker.conf"), "broker.conf"
        )


def test_no_conf_file_at_all_is_a_plain_broker_with_rocketmqs_defaults() -> None:
    config, warnings = load_broker_config(None, {"namesrvAddr": "127.0.0.1:9876", "brokerIP1": "10.0.0.1"})
    assert warnings == []
    assert config.dledger is None
    assert (config.broker_name, config.listen_port) == (socket.gethostname(), 10911)
    assert config.store.store_path_root_dir == str(Path.home() / "store")
    assert config.store.store_path_commit_log == str(Path.home() / "store" / "commitlog")
    assert config.store.flush_disk_type is FlushDiskType.ASYNC_FLUSH


PLAIN = """
brokerClusterName=DefaultCluster
brokerName=broker-a
brokerId=0
deleteWhen=04
fileReservedTime=48
brokerRole=ASYNC_MASTER
flushDiskType=SYNC_FLUSH
storePathRootDir=/data/store
storePathCommitLog=/data2/commitlog
namesrvAddr=127.0.0.1:9876
brokerIP1=10.0.0.1
"""


def test_a_conf_of_a_master_of_rocketmqs_starts_as_it_is() -> None:
    config, warnings = read_broker_config(parse_properties(PLAIN, "b.conf"), "b.conf")
    assert warnings == []
    assert config.dledger is None
    assert config.store.store_path_commit_log == "/data2/commitlog"
    assert config.store.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert store_config(config).ledger_directory == "/data/store/pydledger"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("brokerRole=SLAVE", "a plain broker has no slaves here"),
        ("storePathCommitLog=/a,/b", "name one"),
        ("dLegerGroup=G", "dLegerGroup is for a member of a DLedger group: say enableDLegerCommitLog=true"),
    ],
)
def test_what_a_plain_broker_cannot_do_is_refused(line: str, message: str) -> None:
    with pytest.raises(ConfigError, match=r"b\.conf") as caught:
        read_broker_config(parse_properties(PLAIN + line, "b.conf"), "b.conf")
    assert message in str(caught.value)


def test_keys_of_a_group_are_no_fault_where_the_group_is_switched_off() -> None:
    text = PLAIN + "enableDLegerCommitLog=false\ndLegerGroup=G"
    assert read_broker_config(parse_properties(text, "b.conf"), "b.conf")[0].dledger is None


@pytest.mark.parametrize(
    "text",
    [
        MINIMUM + "pyDLedgerPeerDial=n0=127.0.0.1:7001\nflushDiskType=ASYNC_FLUSH\nmessageDelayLevel=1s 2m",
        MINIMUM + "namesrvAddr=10.0.0.1:9876;10.0.0.2:9876\npyDLedgerHttpPort=30917\ndeleteWhen=03;15",
        "storePathRootDir=/tmp/store\nbrokerIP1=::1\nnamesrvAddr=[::1]:9876",
    ],
)
def test_what_is_shown_makes_the_same_broker_as_a_conf_file(text: str) -> None:
    config, _ = read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")
    shown = format_properties(shown_settings(config).items())
    assert read_broker_config(parse_properties(shown, "shown"), "shown") == (config, [])


def test_a_secret_is_not_shown() -> None:
    config, _ = read("pyDLedgerClusterSecret=between us")
    assert "between us" not in shown_settings(config).values()


@pytest.mark.parametrize("text", ["10.0.0.1:10911", "this machine", ""])
def test_an_address_to_which_no_port_can_be_added_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="an IP address or a host's name, without a port"):
        read(f"brokerIP1={text}")


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(MINIMUM + "namesrvAddr=127.0.0.1:9876\n")
    config, warnings = load_broker_config(str(path), {"namesrvAddr": "10.0.0.1:9876;10.0.0.2:9876"})
    assert config.namesrv_addr == ("10.0.0.1:9876", "10.0.0.2:9876")
    assert warnings == []


@pytest.mark.parametrize("path", sorted((ROOT / "conf").glob("broker-*.conf")), ids=lambda path: path.name)
def test_the_example_files_are_read_without_a_warning(path: Path) -> None:
    _, warnings = load_broker_config(str(path))
    assert warnings == []


def test_every_key_that_is_read_is_documented() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    second_spellings = {"mappedFileSizeCommitLog", "mappedFileSizeConsumeQueue"}
    all_settings = (BROKER_SETTINGS, DLEDGER_SETTINGS, STORE_SETTINGS, ACCESS_SETTINGS, NAMESRV_SETTINGS)
    read_keys = {key for settings in all_settings for key in settings} - second_spellings
    assert {key for key in read_keys if f"`{key}`" not in page} == set()
