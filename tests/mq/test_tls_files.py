"""`mq tls init`: which files it makes, and what servers and clients make of them."""

from __future__ import annotations

import contextlib
import ssl
import stat
import sys
from pathlib import Path

import pytest

from mq.tls_files import TlsDirectory
from remoting.address import AddressError
from remoting.configuration import load_conf_file, read_settings
from remoting.tls import TlsError, TlsFiles
from remoting.tls_settings import TLS_SETTINGS, ClientAuth, client_tls_from_file, server_tls, take_tls_config


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> dict[str, object]:
    """In memory; the client's certificate as the server sees it. Raises SSLError."""
    one, two = ssl.MemoryBIO(), ssl.MemoryBIO()
    serving = server.wrap_bio(one, two, server_side=True)
    asking = client.wrap_bio(two, one, server_hostname=host)
    for _ in range(4):
        for side in (asking, serving):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    return dict(serving.getpeercert() or {})


def server_context(directory: TlsDirectory, name: str) -> ssl.SSLContext:
    path = str(directory.properties_file(name))
    found = read_settings(load_conf_file(path, TLS_SETTINGS), TLS_SETTINGS)
    assert found.warnings == []
    found.values["server_need_client_auth"] = ClientAuth.REQUIRE
    tls = server_tls(take_tls_config(found.values, path, {}))
    assert tls is not None
    return tls.context


def client_context(directory: TlsDirectory, name: str = "client") -> ssl.SSLContext:
    tls = client_tls_from_file(str(directory.properties_file(name)))
    assert tls is not None
    return tls.context


def contents(directory: TlsDirectory) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.directory.iterdir()}


def test_the_files_make_a_cluster_in_which_all_trust_each_other(tmp_path: Path) -> None:
    directory = TlsDirectory(tmp_path / "tls")
    made = directory.make([["b1.example", "10.0.0.1"], ["b2.example"]])
    assert made == {"ca": True, "b1.example": True, "b2.example": True, "client": True}
    for client in ("client", "b2.example"):
        for host in ("b1.example", "10.0.0.1"):
            seen = handshake(server_context(directory, "b1.example"), client_context(directory, client), host)
            assert client in str(seen["subject"])
    with pytest.raises(ssl.SSLCertVerificationError, match="match"):
        handshake(server_context(directory, "b2.example"), client_context(directory), "b1.example")


def test_a_clients_certificate_is_no_servers(tmp_path: Path) -> None:
    directory = TlsDirectory(tmp_path)
    directory.make([])
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = directory.files("client")
    server.load_cert_chain(files.cert_path, files.key_path)
    with pytest.raises(ssl.SSLCertVerificationError, match="purpose"):
        handshake(server, client_context(directory), "localhost")


def test_the_strictest_reader_takes_the_certificates(tmp_path: Path) -> None:
    directory = TlsDirectory(tmp_path)
    directory.make([])
    client = client_context(directory)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    handshake(server_context(directory, "localhost"), client, "127.0.0.1")


def test_what_is_there_stays_and_a_further_host_is_added(tmp_path: Path) -> None:
    directory = TlsDirectory(tmp_path)
    directory.make([["b1"]])
    before = contents(directory)
    assert directory.make([["b1"], ["b2"]]) == {"ca": False, "b1": False, "b2": True, "client": False}
    after = contents(directory)
    assert {name: after[name] for name in before} == before
    handshake(server_context(directory, "b2"), client_context(directory), "b2")


def test_renewed_certificates_are_of_the_same_authority(tmp_path: Path) -> None:
    directory = TlsDirectory(tmp_path)
    directory.make([["b1"]])
    former, before = client_context(directory), contents(directory)
    assert directory.make([["b1"]], renews=True) == {"ca": False, "b1": True, "client": True}
    assert contents(directory)["b1.crt"] != before["b1.crt"]
    assert contents(directory)["ca.crt"] == before["ca.crt"]
    handshake(server_context(directory, "b1"), former, "b1")


def test_keys_are_their_owners_alone(tmp_path: Path) -> None:
    TlsDirectory(tmp_path / "tls").make([])
    keys = list((tmp_path / "tls").glob("*.key"))
    assert len(keys) == 3
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    assert stat.S_IMODE((tmp_path / "tls").stat().st_mode) == 0o700


def test_a_host_that_is_none_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(AddressError):
        TlsDirectory(tmp_path).make([["../b1"]])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ca", "client"])
def test_a_server_does_not_take_the_files_of_others(tmp_path: Path, name: str) -> None:
    with pytest.raises(TlsError, match="give another of its names first"):
        TlsDirectory(tmp_path).make([[name, "10.0.0.1"]])
    assert list(tmp_path.iterdir()) == []


def test_an_authority_that_is_broken_is_named(tmp_path: Path) -> None:
    directory = TlsDirectory(tmp_path)
    directory.make([])
    Path(directory.files("ca").key_path).write_text("no key")
    with pytest.raises(TlsError, match=r"ca\.key and .*ca\.crt are no key with its certificate"):
        directory.make([["b1"]])


def test_without_its_library_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(TlsError, match=r"pip install 'pydledger\[tls\]'"):
        TlsDirectory(tmp_path).make([])


def test_files_of_a_name_lie_side_by_side(tmp_path: Path) -> None:
    expected = TlsFiles(key_path=f"{tmp_path}/b1.key", cert_path=f"{tmp_path}/b1.crt")
    assert TlsDirectory(tmp_path).files("b1") == expected
