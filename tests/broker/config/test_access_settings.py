"""Access control in a conf file: what it says, what stops the start, and that no secret is shown."""

from __future__ import annotations

from ipaddress import ip_network
from pathlib import Path

import pytest

from auth.credentials import Credentials
from auth.user import User, UserType
from broker.config.broker_config import BrokerConfig
from broker.config.config_file import read_broker_config, shown_settings
from broker.config.runtime_config import altered_config
from remoting.configuration import ConfigError, parse_properties

SECURE = """
authenticationEnabled=true
authorizationEnabled=true
authenticationWhitelist=105, 34
authorizationWhitelist=34
initAuthenticationUser={"username":"root","password":"secret-1"}
innerClientAuthenticationCredentials={"accessKey":"inner","secretKey":"secret-2"}
pyDLedgerAdminFrom=10.0.0.0/8,192.168.1.7,fd00::/8
"""


def read(text: str) -> BrokerConfig:
    return read_broker_config(parse_properties(f"brokerIP1=127.0.0.1\n{text}", "b.conf"), "b.conf")[0]


def test_rocketmqs_keys_are_read() -> None:
    access = read(SECURE).access
    assert access.authentication_enabled
    assert access.authorization_enabled
    assert access.authentication_whitelist == {105, 34}
    assert access.authorization_whitelist == {34}
    assert access.init_authentication_user == User("root", "secret-1", UserType.SUPER)
    assert access.inner_client_credentials == Credentials("inner", "secret-2")
    assert [user.username for user in access.conf_users] == ["root", "inner"]
    assert access.admin_from == tuple(map(ip_network, ("10.0.0.0/8", "192.168.1.7/32", "fd00::/8")))


def test_no_secret_is_shown_and_the_rest_reads_back() -> None:
    config = read(SECURE)
    assert "secret-" not in repr(config)
    shown = shown_settings(config)
    assert "secret-" not in str(shown)
    again = read("".join(f"{key}={value}\n" for key, value in shown.items()))
    assert again.access.authorization_whitelist == config.access.authorization_whitelist
    assert again.access.admin_from == config.access.admin_from


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("authorizationEnabled=true", "authorizationEnabled=true needs authenticationEnabled=true"),
        ("authenticationEnabled=yes", "authenticationEnabled='yes' must be true or false"),
        ("authenticationWhitelist=a", "must be request codes"),
        ("pyDLedgerAdminFrom=10.0.0.0/99", "must be addresses or networks"),
        (
            "initAuthenticationUser=secret-1",
            'initAuthenticationUser must be {"username":"...","password":"..."}',
        ),
        ('initAuthenticationUser={"username":"secret-1"}', "initAuthenticationUser must be"),
        ('innerClientAuthenticationCredentials=["secret-1"]', "innerClientAuthenticationCredentials must be"),
    ],
)
def test_what_cannot_be_used_stops_the_start_and_shows_no_secret(line: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(line)
    assert reason in str(caught.value)
    assert "secret-" not in str(caught.value)


@pytest.mark.parametrize("line", SECURE.split())
def test_a_running_broker_is_not_opened(line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        altered_config(read(SECURE), line)
    assert "secret-" not in str(caught.value)


def test_secrets_may_be_in_files_or_in_the_environment(tmp_path: Path) -> None:
    (tmp_path / "root").write_text('{"username": "root",\n "password": "secret-1"}\n')
    text = f"brokerIP1=127.0.0.1\ninitAuthenticationUserFile={tmp_path}/root\n"
    environment = {"PYDLEDGER_INNER_CLIENT_CREDENTIALS": '{"accessKey":"inner","secretKey":"secret-2"}'}
    config, warnings = read_broker_config(parse_properties(text, "b.conf"), "b.conf", environment=environment)
    assert config.access.init_authentication_user == User("root", "secret-1", UserType.SUPER)
    assert config.access.inner_client_credentials == Credentials("inner", "secret-2")
    assert not [line for line in warnings if "initAuthenticationUser" in line]
    for line, reason in (
        (
            'initAuthenticationUser={"username":"u","password":"secret-3"}',
            "or initAuthenticationUserFile, not both",
        ),
        (
            "innerClientAuthenticationCredentialsFile=/nowhere",
            "b.conf:3: .*=/nowhere cannot be read: No such file",
        ),
        (
            f"innerClientAuthenticationCredentialsFile={tmp_path}/root",
            "innerClientAuthenticationCredentials must be",
        ),
    ):
        with pytest.raises(ConfigError, match=reason) as caught:
            read_broker_config(parse_properties(f"{text}{line}\n", "b.conf"), "b.conf", environment={})
        assert "secret-" not in str(caught.value)
