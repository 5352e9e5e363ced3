"""Who may ask a NameServer: administration beyond its machine, and users where its conf says so."""

from __future__ import annotations

import pytest

from auth.credentials import Credentials
from namesrv.kv_config_manager import KVConfigManager
from namesrv.namesrv_access import ADMINISTRATION, NamesrvAccess
from namesrv.namesrv_config import NAMESRV_SETTINGS, NamesrvConfig, load_namesrv_config, shown_settings
from namesrv.processor import NamesrvProcessor
from namesrv.route_info_manager import RouteInfoManager
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import ConfigError
from remoting.frame.command import RemotingCommand, request
from remoting.frame.connection import RemotingConnection

USERS = (
    '[{"username":"inner","password":"secret-1","userType":"Super"},{"username":"app","password":"secret-2"}]'
)
INNER, APP = Credentials("inner", "secret-1"), Credentials("app", "secret-2")


class Channel:
    id = 1

    def __init__(self, remote_address: str) -> None:
        self.remote_address = remote_address
        self.attributes: dict[str, object] = {}
        self.answers: list[RemotingCommand] = []

    def write(self, data: bytes) -> None:
        self.answers += RemotingConnection().receive_data(data)


def config(**keys: str) -> NamesrvConfig:
    return load_namesrv_config(None, keys)[0]


def processor_of(conf: NamesrvConfig) -> NamesrvProcessor:
    return NamesrvProcessor(
        RouteInfoManager(), KVConfigManager(), shown_settings(conf), lambda _: None, NamesrvAccess(conf)
    )


def asked(code: int, credentials: Credentials | None = None) -> RemotingCommand:
    fields = {"namespace": "n", "key": "k", "value": "v", "topic": "T", "brokerName": "b"}
    command = request(code, fields, opaque=1)
    if credentials is not None:
        command.ext_fields = credentials.signed(fields, b"", command.version)
    return command


def ask(
    conf: NamesrvConfig, code: int, credentials: Credentials | None = None, source: str = "10.1.2.3:5"
) -> RemotingCommand:
    channel = Channel(source)
    processor_of(conf).process(channel, [asked(code, credentials)], 0)
    (answer,) = channel.answers
    return answer


@pytest.mark.parametrize("code", sorted(ADMINISTRATION))
def test_administration_is_closed_beyond_this_machine(code: RequestCode) -> None:
    assert ask(config(), code).remark == (
        f"{code.name} is administration, which is closed for 10.1.2.3: put its address into pyDLedgerAdminFrom of this "
        "NameServer's conf, or switch access control on (docs/security.md)"
    )
    for conf, source in (
        (config(), "127.0.0.1:5"),
        (config(), "[::1]:5"),
        (config(pyDLedgerAdminFrom="10.1.0.0/16"), "10.1.2.3:5"),
    ):
        assert ask(conf, code, source=source).code != ResponseCode.NO_PERMISSION


def test_everybody_asks_for_routes_and_registers_where_nobody_is_asked_who_they_are() -> None:
    for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.REGISTER_BROKER, RequestCode.GET_KV_CONFIG):
        assert ask(config(), code).code != ResponseCode.NO_PERMISSION


def test_with_authentication_each_request_needs_a_user_and_brokers_a_super_user() -> None:
    conf = config(authenticationEnabled="true", pyDLedgerUsers=USERS)
    for code in (RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.REGISTER_BROKER, *ADMINISTRATION):
        assert ask(conf, code, source="127.0.0.1:5").remark == "username cannot be null."
        assert ask(conf, code, Credentials("app", "wrong")).remark == "check signature failed."
        assert ask(conf, code, INNER).code != ResponseCode.NO_PERMISSION
    assert ask(conf, RequestCode.GET_ROUTEINFO_BY_TOPIC, APP).code == ResponseCode.TOPIC_NOT_EXIST
    for code in (RequestCode.REGISTER_BROKER, RequestCode.QUERY_DATA_VERSION, *ADMINISTRATION):
        assert ask(conf, code, APP).remark == "User:app is no super user, as this request needs."


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"authenticationEnabled": "true"}, "needs a super user in pyDLedgerUsers"),
        ({"authenticationEnabled": "yes"}, "must be true or false"),
        ({"pyDLedgerUsers": '[{"username":"secret-1"}]'}, "pyDLedgerUsers must be"),
    ],
)
def test_what_cannot_be_used_stops_the_start_and_shows_no_secret(keys: dict[str, str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        config(**keys)
    assert "secret-" not in str(caught.value)


def test_a_long_access_key_makes_no_long_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    conf = config(authenticationEnabled="true", pyDLedgerUsers=USERS)
    ask(conf, RequestCode.GET_ROUTEINFO_BY_TOPIC, Credentials(100_000 * "u", "s"))
    (record,) = caplog.records
    assert len(record.getMessage()) < 1000


def test_secrets_are_not_shown() -> None:
    shown = shown_settings(config(authenticationEnabled="true", pyDLedgerUsers=USERS))
    assert "secret-" not in str(shown)
    assert shown["authenticationEnabled"] == "true"
    assert "pyDLedgerUsers" in NAMESRV_SETTINGS
