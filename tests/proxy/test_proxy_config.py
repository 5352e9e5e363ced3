"""rmq-proxy.json and flags: what is taken, and what is said of the rest."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from proxy.config import load_proxy_config, shown_settings
from proxy.server import tls_of
from remoting.certificates import write_self_made_certificate
from remoting.configuration import ConfigError
from remoting.tls import ServerTls, TlsError, TlsFiles, TlsMode


def conf(tmp_path: Path, text: str | dict[str, object]) -> str:
    path = tmp_path / "rmq-proxy.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
    return str(path)


def test_a_conf_of_rocketmq_is_taken(tmp_path: Path) -> None:
    path = conf(
        tmp_path,
        {
            "rocketMQClusterName": "DefaultCluster",
            "namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877",
            "grpcServerPort": 18081,
            "enableTopicMessageTypeCheck": False,
            "maxMessageSize": "1024",
        },
    )
    config, warnings = load_proxy_config(path, environment={})
    assert config.namesrv_addr == ("127.0.0.1:9876", "127.0.0.1:9877")
    assert (config.grpc_server_port, config.max_message_size) == (18081, 1024)
    assert config.enable_topic_message_type_check is False
    assert warnings == [f"{path}: RocketMQ's keys without effect here: rocketMQClusterName"]


def test_flags_win_and_the_environment_counts_last(tmp_path: Path) -> None:
    environment = {"NAMESRV_ADDR": "c:3"}
    path = conf(tmp_path, {"namesrvAddr": "a:1"})
    assert load_proxy_config(path, {"namesrvAddr": "b:2"}, environment)[0].namesrv_addr == ("b:2",)
    assert load_proxy_config(path, {}, environment)[0].namesrv_addr == ("a:1",)
    assert load_proxy_config(None, {}, environment)[0].namesrv_addr == ("c:3",)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"namesrvAddr": "a:1",\n"grpcServerPort": 99999}', ":2: grpcServerPort='99999' must be"),
        ('{"namesrvAddr": "a:1",\n', ":2: no JSON"),
        ("[]", "a JSON object is needed"),
        ('{"namesrvAddr": ["a:1"]}', ":1: namesrvAddr must be a text"),
        ("{}", "no NameServer is named: give -n HOST:PORT"),
        ('{"namesrvAddr": "a:1", "proxyMode": "LOCAL"}', "must be CLUSTER: a broker is another process"),
        ('{"namesrvAddr": "a:1", "pyDLedgerAdvertisedEndpoint": "0.0.0.0:1"}', "nobody can dial it"),
        ('{"namesrvAddr": "a:1", "tlsKeyPath": "k"}', "tlsKeyPath and tlsCertPath go together"),
        ('{"namesrvAddr": "a:1", "tls.server.mode": "maybe"}', "one of disabled, permissive, enforcing"),
        ('{"namesrvAddr": "a:1", "aclEnable": true}', "asks for what is not there"),
        (
            '{"namesrvAddr": "a:1", "authenticationEnabled": true}',
            "innerClientAuthenticationCredentials go together",
        ),
        ('{"namesrvAddr": "a:1", "authenticationEnabled": "yes"}', "must be true or false"),
        ('{"namesrvAddr": "a:1", "authorizationEnabled": true}', "needs authenticationEnabled=true"),
        (
            (
                '{"namesrvAddr": "a:1", "innerClientAuthenticationCredentials": "{\\"accessKey\\": \\"k\\", '
                '\\"secretKey\\": \\"s\\"}"}'
            ),
            "go together: brokers take what the proxy signs",
        ),
        ('{"namesrvAddr": "a:1", "innerClientAuthenticationCredentials": "secret"}', "must be"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_proxy_config(conf(tmp_path, text), environment={})
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_what_is_unknown_or_no_number_is_a_warning(tmp_path: Path) -> None:
    path = conf(tmp_path, {"namesrvAddr": "a:1", "grpcServerPrt": 1, "userPropertyMaxNum": "many"})
    config, warnings = load_proxy_config(path, environment={})
    assert config.user_property_max_num == 128
    assert any("unknown key grpcServerPrt; did you mean grpcServerPort?" in warning for warning in warnings)
    assert any("userPropertyMaxNum='many' is not a whole number" in warning for warning in warnings)


def test_the_settings_that_are_shown_make_the_same_proxy(tmp_path: Path) -> None:
    config, _ = load_proxy_config(
        conf(tmp_path, {"namesrvAddr": "a:1;b:2", "pyDLedgerAdvertisedEndpoint": "lb.example:443"}),
        environment={},
    )
    again, warnings = load_proxy_config(conf(tmp_path, shown_settings(config)), environment={})  # type: ignore[arg-type]
    assert (again, warnings) == (config, [])


def _tls_of(**settings: object) -> ServerTls | None:
    pairs = {"namesrvAddr": "a:1", **{key.replace("__", "."): str(value) for key, value in settings.items()}}
    return tls_of(load_proxy_config(None, pairs, environment={})[0])


def test_tls_is_as_the_conf_says(tmp_path: Path) -> None:
    files = TlsFiles(key_path=str(tmp_path / "k"), cert_path=str(tmp_path / "c"))
    write_self_made_certificate(files)
    given = {"tlsKeyPath": files.key_path, "tlsCertPath": files.cert_path}
    assert _tls_of() is None
    assert _tls_of(tls__server__mode="disabled", **given) is None
    for settings, mode in [
        ({**given}, TlsMode.PERMISSIVE),
        ({**given, "tls__server__mode": "enforcing"}, TlsMode.ENFORCING),
        ({"tlsTestModeEnable": "true"}, TlsMode.PERMISSIVE),
        ({"pyDLedgerBindAddress": "127.0.0.1"}, TlsMode.PERMISSIVE),
    ]:
        tls = _tls_of(**settings)
        assert tls is not None
        assert tls.mode is mode


def test_a_key_may_have_a_password_which_nothing_prints(tmp_path: Path) -> None:
    files = TlsFiles(key_path=str(tmp_path / "k"), cert_path=str(tmp_path / "c"))
    write_self_made_certificate(files)
    key = tmp_path / "k"
    encryption = serialization.BestAvailableEncryption(b"sesame")
    key.write_bytes(
        serialization.load_pem_private_key(key.read_bytes(), None).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
        )
    )
    given = {"tlsKeyPath": files.key_path, "tlsCertPath": files.cert_path}
    assert _tls_of(**given, tlsKeyPassword="sesame") is not None
    with pytest.raises(TlsError, match="are no certificate with its key") as refused:
        _tls_of(**given, tlsKeyPassword="open-up")
    assert "open-up" not in str(refused.value)
    pairs = {"namesrvAddr": "a:1", **given, "tlsKeyPassword": "sesame"}
    config, warnings = load_proxy_config(None, pairs, environment={})
    assert warnings == []
    assert "sesame" not in str(shown_settings(config))


def test_tls_is_not_enforced_without_a_certificate() -> None:
    with pytest.raises(TlsError, match=r"tls\.server\.mode=enforcing, and no certificate: give tlsKeyPath"):
        _tls_of(tls__server__mode="enforcing")
