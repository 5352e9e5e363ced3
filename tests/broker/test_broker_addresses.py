"""What a conf's addresses become where they are names, and where none is given. Nothing here asks a real DNS."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from broker.config import config_file
from broker.config.broker_config import BrokerConfig
from broker.config.component_configs import dledger_config, store_config
from broker.config.config_file import load_broker_config, read_broker_config
from message.message_id import pack_host
from remoting.address import Address
from remoting.configuration import ConfigError, parse_properties
from remoting.lookup import ip_addresses

GROUP = """
enableDLegerCommitLog=true
dLegerGroup=berlin@broker
dLegerSelfId=n0
storePathRootDir=/tmp/store
namesrvAddr=mqnamesrv-0.mqnamesrv-svc:9876;mqnamesrv-1.mqnamesrv-svc:9876
dLegerPeers=n0-broker-0.mqbroker-svc:40911;n1-broker-1.mqbroker-svc:40912;n2-broker-2.mqbroker-svc:40913
"""
PLAIN = "storePathRootDir=/tmp/store\nbrokerName=shop-broker\nnamesrvAddr=shop-namesrv:9876\n"
HOSTS = {f"broker-{number}.mqbroker-svc": [f"10.0.0.{number + 1}"] for number in range(3)}
ON_LOOPBACK = {name: ["127.0.0.1"] for name in HOSTS}


def read(text: str, hosts: Mapping[str, list[str]]) -> tuple[BrokerConfig, list[str]]:
    return read_broker_config(parse_properties(text, "b.conf"), "b.conf", lambda host: hosts.get(host, []))


def test_members_with_names_need_a_secret_and_are_told_so_in_one_line() -> None:
    with pytest.raises(ConfigError) as caught:
        read(GROUP, HOSTS)
    assert str(caught.value) == (
        "b.conf: dLegerPeers: n0-broker-0.mqbroker-svc:40911 is beyond this machine, and strangers must not join: put "
        "the same pyDLedgerClusterSecret, or pyDLedgerClusterSecretFile, into the confs of all members (`mq cluster "
        "secret` makes one)"
    )


def test_a_name_that_leads_nowhere_yet_is_not_this_machine() -> None:
    with pytest.raises(
        ConfigError, match=r"n2-broker-2\.mqbroker-svc:40913 leads to no address of this machine yet"
    ):
        read(GROUP, {**ON_LOOPBACK, "broker-2.mqbroker-svc": []})


def test_a_name_that_leads_to_this_machine_and_beyond_is_not_this_machine() -> None:
    with pytest.raises(ConfigError, match="is beyond this machine"):
        read(GROUP, {**ON_LOOPBACK, "broker-2.mqbroker-svc": ["127.0.0.1", "10.0.0.3"]})


def test_without_a_secret_names_count_for_the_loopback_address_they_lead_to() -> None:
    config, warnings = read(GROUP, {**ON_LOOPBACK, "127.0.0.1": ["127.0.0.1"]})
    assert warnings == []
    assert config.dledger is not None
    assert config.dledger.peers["n2"] == Address("127.0.0.1", 40913)
    assert dledger_config(config).listen == Address("127.0.0.1", 40911)
    assert config.broker_addr == "127.0.0.1:10911"


def test_with_a_secret_names_stay_names_and_are_looked_up_at_each_dial() -> None:
    config, warnings = read(GROUP + "pyDLedgerClusterSecret=between us", HOSTS)
    assert warnings == []
    ledger = dledger_config(config)
    assert str(ledger.peers["n1"]) == "broker-1.mqbroker-svc:40912"
    # A service's name leads to an address that no member has.
    assert ledger.listen == Address("0.0.0.0", 40911)
    assert config.broker_addr == "broker-0.mqbroker-svc:10911"
    assert store_config(config).store_host == pack_host("10.0.0.1:10911")


def test_members_with_ip_addresses_listen_there_alone() -> None:
    text = GROUP + "dLegerPeers=n0-10.0.0.1:1;n1-10.0.0.2:1\npyDLedgerClusterSecret=x"
    assert dledger_config(read(text, {"10.0.0.1": ["10.0.0.1"]})[0]).listen == Address("10.0.0.1", 1)


def test_a_secret_is_read_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("between us\n")
    config, _ = read(GROUP + f"pyDLedgerClusterSecretFile={path}", HOSTS)
    assert dledger_config(config).cluster_secrets.read_again() == (b"between us",)


@pytest.mark.parametrize(
    ("content", "extra", "message"),
    [
        (None, "", "cannot be read: No such file or directory"),
        (b" \n", "", "is empty"),
        (b"\xff", "", "cannot be read: it is no text"),
        (b"x", "pyDLedgerClusterSecret=x", "not both"),
    ],
)
def test_a_secret_file_without_a_secret_is_refused(
    tmp_path: Path, content: bytes | None, extra: str, message: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        read(GROUP + f"pyDLedgerClusterSecretFile={path}\n{extra}", HOSTS)


def test_clients_are_told_the_name_and_records_hold_its_address() -> None:
    config, warnings = read(PLAIN + "brokerIP1=shop-broker", {"shop-broker": ["10.0.0.7", "fd00::7"]})
    assert warnings == []
    assert config.broker_addr == "shop-broker:10911"
    assert config.store_host == "10.0.0.7:10911"


def test_a_name_that_leads_nowhere_yet_lends_its_address_from_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(config_file, "own_address", lambda: "10.0.0.9")
    config, warnings = read(PLAIN + "brokerIP1=shop-broker", {})
    assert config.broker_addr == "shop-broker:10911"
    assert config.store_host == "10.0.0.9:10911"
    assert warnings == [
        "b.conf: brokerIP1=shop-broker leads to no address yet: until the next start, message ids name 10.0.0.9 instead"
    ]


def test_a_loopback_address_that_was_guessed_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "own_address", lambda: None)
    config, warnings = read(PLAIN, {"127.0.0.1": ["127.0.0.1"]})
    assert config.broker_addr == "127.0.0.1:10911"
    assert len(warnings) == 1
    assert "brokerIP1=127.0.0.1 is guessed" in warnings[0]


def test_an_ipv6_address_stands_in_brackets_where_a_port_follows() -> None:
    for text in ("::1", "[::1]"):
        config, _ = read(PLAIN + f"brokerIP1={text}", {"::1": ["::1"]})
        assert (config.broker_addr, config.store_host) == ("[::1]:10911", "[::1]:10911")


def test_name_servers_come_from_the_command_line_then_the_file_then_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "b.conf"
    environment = {"NAMESRV_ADDR": "c:3;d:4"}
    path.write_text("storePathRootDir=/tmp/store\nbrokerIP1=127.0.0.1\nnamesrvAddr=b:2\n")
    assert load_broker_config(str(path), {"namesrvAddr": "a:1"}, environment)[0].namesrv_addr == ("a:1",)
    assert load_broker_config(str(path), {}, environment)[0].namesrv_addr == ("b:2",)
    for unnamed in ("", "namesrvAddr=\n"):
        path.write_text("storePathRootDir=/tmp/store\nbrokerIP1=127.0.0.1\n" + unnamed)
        config, warnings = load_broker_config(str(path), {}, environment)
        assert config.namesrv_addr == ("c:3", "d:4")
        assert warnings == []
    with pytest.raises(
        ConfigError, match="NAMESRV_ADDR in the environment: namesrvAddr='c' must be host:port"
    ):
        load_broker_config(str(path), {}, {"NAMESRV_ADDR": "c"})


def test_a_broker_that_is_registered_nowhere_says_so() -> None:
    _, warnings = read_broker_config(parse_properties("brokerIP1=127.0.0.1", "b.conf"), "b.conf")
    assert len(warnings) == 1
    assert "no NameServer is named" in warnings[0]


def test_ipv4_comes_first_and_what_leads_nowhere_is_nothing() -> None:
    assert ip_addresses("127.0.0.1") == ["127.0.0.1"]
    assert ip_addresses("::1") == ["::1"]
    assert ip_addresses("localhost")[0] == "127.0.0.1"
    assert ip_addresses("a..b") == []


def test_a_host_to_listen_at_may_have_brackets_and_no_port() -> None:
    config, _ = read(PLAIN + "brokerIP1=127.0.0.1\nbindAddress=[::]\npyDLedgerHttpAddress=[::1]", ON_LOOPBACK)
    assert (config.bind_address, config.http_address) == ("::", "::1")
    for key in ("bindAddress", "pyDLedgerHttpAddress"):
        with pytest.raises(ConfigError, match="an IP address or a host's name, without a port"):
            read(PLAIN + f"{key}=127.0.0.1:80", ON_LOOPBACK)
