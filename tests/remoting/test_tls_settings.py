"""RocketMQ's keys for TLS, and where secrets may be: what is taken, and what stops the start."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from remoting.certificates import write_self_made_certificate
from remoting.configuration import ConfigError, parse_properties, read_settings
from remoting.secret import Secret
from remoting.tls import TlsError, TlsFiles, TlsMode
from remoting.tls_settings import (
    TLS_SETTINGS,
    ClientAuth,
    TlsConfig,
    client_tls,
    client_tls_from_file,
    server_tls,
    take_tls_config,
    with_tls_file,
)

SECRET = "hush-4711"
PAIR = "tls.server.keyPath=k\ntls.server.certPath=c\n"


def read(text: str, environment: dict[str, str] | None = None) -> TlsConfig:
    properties = with_tls_file(parse_properties(text, "broker.conf"))
    found = read_settings(properties, TLS_SETTINGS)
    assert found.warnings == []
    config = take_tls_config(found.values, "broker.conf", environment or {})
    assert found.values == {}
    return config


def test_without_keys_a_port_is_plaintext_and_so_are_dials() -> None:
    config = read("")
    assert server_tls(config) is None
    assert client_tls(config) is None


def test_all_keys_are_read() -> None:
    config = read(
        "tls.server.mode=Enforcing\ntls.test.mode.enable=false\ntls.enable=false\n"
        f"{PAIR}tls.server.keyPassword={SECRET}\ntls.server.need.client.auth=REQUIRE\n"
        "tls.server.authClient=true\ntls.server.trustCertPath=t\n"
        "tls.client.keyPath=ck\ntls.client.certPath=cc\ntls.client.keyPassword=p\n"
        "tls.client.authServer=false\ntls.client.trustCertPath=ct\npyDLedgerTlsCheckHostName=false\n"
        "tls.protocols=TLSv1.3, TLSv1.2\ntls.ciphers=ECDHE-RSA-AES128-GCM-SHA256, ECDHE-ECDSA-AES128-GCM-SHA256"
    )
    assert config == TlsConfig(
        server_mode=TlsMode.ENFORCING,
        client_enable=False,
        server_key_path="k",
        server_cert_path="c",
        server_key_password=Secret(SECRET),
        server_need_client_auth=ClientAuth.REQUIRE,
        server_auth_client=True,
        server_trust_cert_path="t",
        client_key_path="ck",
        client_cert_path="cc",
        client_key_password=Secret("p"),
        client_auth_server=False,
        client_trust_cert_path="ct",
        check_host_name=False,
        protocols="TLSv1.3,TLSv1.2",
        ciphers="ECDHE-RSA-AES128-GCM-SHA256,ECDHE-ECDSA-AES128-GCM-SHA256",
    )
    assert config.limits.versions == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("tls.server.mode=enforcing", "and no certificate: give tls.server.keyPath and tls.server.certPath"),
        ("tls.server.mode=enforced", "one of disabled, permissive, enforcing"),
        ("tls.server.keyPath=k", "tls.server.keyPath and tls.server.certPath go together"),
        ("tls.client.certPath=k", "tls.client.keyPath and tls.client.certPath go together"),
        ("tls.client.authServer=ture", "tls.client.authServer='ture' must be true or false"),
        ("tls.enable=yes", "tls.enable='yes' must be true or false"),
        (f"{PAIR}tls.server.authClient=true", "checks no client that is not asked for its certificate"),
        (f"{PAIR}tls.server.need.client.auth=require", "needs tls.server.trustCertPath"),
        ("tls.server.need.client.auth=maybe", "one of none, optional, require"),
        ("tls.protocols=TLSv1.1", "must be TLSv1.2, TLSv1.3 or both"),
        ("tls.ciphers=ROT13", "names that OpenSSL has for cipher suites"),
        ("tls.config.file=/nowhere", "tls.config.file=/nowhere cannot be read: No such file or directory"),
    ],
)
def test_what_cannot_be_safe_stops_the_start(text: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert reason in str(caught.value)


def test_a_tls_file_wins_over_the_conf_as_in_java(tmp_path: Path) -> None:
    (tmp_path / "tls.properties").write_text("tls.server.keyPath=of the file\ntls.server.mode=enforcing\n")
    config = read(f"{PAIR}tls.config.file={tmp_path}/tls.properties")
    assert (config.server_key_path, config.server_cert_path) == ("of the file", "c")
    assert config.server_mode is TlsMode.ENFORCING


def test_dials_use_tls_where_the_own_port_does_not_take_plaintext(tmp_path: Path) -> None:
    """As with RocketMQ: tls.enable follows the mode, where it is not set."""
    files = TlsFiles(key_path=f"{tmp_path}/k", cert_path=f"{tmp_path}/c")
    write_self_made_certificate(files)
    pair = f"tls.server.keyPath={files.key_path}\ntls.server.certPath={files.cert_path}\n"
    assert client_tls(read(pair)) is None
    assert client_tls(read(f"{pair}tls.server.mode=enforcing")) is not None
    assert client_tls(read(f"{pair}tls.server.mode=enforcing\ntls.enable=false")) is None


def test_a_clients_file_turns_tls_on_unless_it_says_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("tls.client.authServer=false\n")
    assert client_tls_from_file(str(path)) is not None
    path.write_text("tls.enable=false\n")
    assert client_tls_from_file(str(path)) is None


def test_a_password_comes_from_the_conf_its_file_or_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text(f"{SECRET}\n")
    environment = {"PYDLEDGER_TLS_SERVER_KEY_PASSWORD": SECRET, "PYDLEDGER_TLS_CLIENT_KEY_PASSWORD": "c"}
    for config in (
        read(f"tls.server.keyPassword={SECRET}", environment),
        read(f"tls.server.keyPasswordFile={path}", environment),
        read("", environment),
    ):
        assert config.server_key_password.reveal() == SECRET
        assert config.client_key_password.reveal() == "c"
        assert SECRET not in repr(config)
        assert SECRET not in f"{config.server_key_password}"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(None, "cannot be read: No such file"), (b"\n \n", "is empty"), (b"\xff", "no text")],
)
def test_a_password_file_without_a_password_is_refused(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        read(f"tls.server.keyPasswordFile={path}")


def test_two_places_for_one_secret_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"keyPassword or tls\.server\.keyPasswordFile, not both"):
        read(f"tls.server.keyPassword={SECRET}\ntls.server.keyPasswordFile={tmp_path}/p")


def test_a_secret_is_in_no_message() -> None:
    with pytest.raises(ConfigError) as caught:
        read("tls.server.keyPassword=")
    assert str(caught.value) == "broker.conf:1: tls.server.keyPassword must be a text that is not empty"


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    files = TlsFiles(key_path=f"{tmp_path}/k", cert_path=f"{tmp_path}/c")
    write_self_made_certificate(files)
    key = serialization.load_pem_private_key(Path(files.key_path).read_bytes(), None)
    Path(files.key_path).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(SECRET.encode()),
        )
    )
    pair = f"tls.server.keyPath={files.key_path}\ntls.server.certPath={files.cert_path}\n"
    assert server_tls(read(f"{pair}tls.server.keyPassword={SECRET}")) is not None
    with pytest.raises(TlsError, match="are no certificate with its key") as caught:
        server_tls(read(f"{pair}tls.server.keyPassword=wrong-{SECRET}"))
    assert SECRET not in str(caught.value)
