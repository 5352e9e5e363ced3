"""What operators and users read when certificates, keys or modes do not fit: one line that says what to do."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from remoting_fakes import RecordingHandler, echo

from remoting import tls as tls_module
from remoting.certificates import Authority
from remoting.client import RemotingClient
from remoting.client_tls import ClientTls
from remoting.errors import RemotingError
from remoting.frame.command import request
from remoting.secret import Secret
from remoting.server import RemotingServer
from remoting.tls import ServerTls, TlsError, TlsFiles, TlsMode

Write = Callable[[str, int], TlsFiles]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority.make("test", 1000)
    made.write(TlsFiles(key_path=f"{tmp_path}/ca.key", cert_path=f"{tmp_path}/ca.crt"))
    return made


@pytest.fixture
def write(tmp_path: Path, authority: Authority) -> Write:
    """A certificate of a server, by its name and its days."""

    def written(name: str, days: int) -> TlsFiles:
        files = TlsFiles(key_path=f"{tmp_path}/{name}.key", cert_path=f"{tmp_path}/{name}.crt")
        authority.issue(files, name, days, ["127.0.0.1"])
        return files

    return written


def refusal(files: TlsFiles) -> str:
    with pytest.raises(TlsError) as caught:
        ServerTls(TlsMode.ENFORCING, files)
    return str(caught.value)


def test_files_that_are_exchanged_are_named_each(write: Write) -> None:
    files = write("s", 100)
    swapped = TlsFiles(key_path=files.cert_path, cert_path=files.key_path)
    assert refusal(swapped).endswith("s.crt has no private key in PEM form")
    assert refusal(TlsFiles(key_path=files.key_path, cert_path=files.key_path)).endswith(
        "s.key has no certificate in PEM form"
    )


def test_a_key_of_another_certificate_is_told(write: Write) -> None:
    one, other = write("one", 100), write("other", 100)
    told = refusal(TlsFiles(key_path=one.key_path, cert_path=other.cert_path))
    assert told.endswith(
        "other.crt and " + one.key_path + " are no certificate with its key: key values mismatch"
    )


def test_a_missing_password_and_a_wrong_one_are_told(write: Write) -> None:
    files = write("s", 100)
    key = serialization.load_pem_private_key(Path(files.key_path).read_bytes(), None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    Path(files.key_path).write_bytes(
        key.private_bytes(*form, serialization.BestAvailableEncryption(b"right"))
    )
    assert refusal(files).endswith("s.key is encrypted: give its keyPassword or keyPasswordFile")
    wrong = TlsFiles(key_path=files.key_path, cert_path=files.cert_path, key_password=Secret("wrong"))
    assert refusal(wrong).endswith("are no certificate with its key: the password is another one")


def warnings_of(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.clear()
    ServerTls(TlsMode.ENFORCING, files)
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_certificate_that_clients_refuse_or_that_ends_soon_is_warned_of(
    write: Write, authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(write("sound", tls_module.SOON_DAYS + 2), caplog) == []
    (told,) = warnings_of(write("soon", tls_module.SOON_DAYS - 2), caplog)
    assert "soon.crt is good until " in told
    (told,) = warnings_of(write("ended", -1), caplog)
    assert told.endswith(
        "clients that look at certificates refuse it: the certificate is not trusted: certificate has expired"
    )
    of_client = TlsFiles(key_path=f"{tmp_path}/client.key", cert_path=f"{tmp_path}/client.crt")
    authority.issue(of_client, "client", 100)
    (told,) = warnings_of(of_client, caplog)
    assert told.endswith("unsuitable certificate purpose")


def end_of(files: TlsFiles) -> float:
    certificate = x509.load_pem_x509_certificate(Path(files.cert_path).read_bytes())
    return certificate.not_valid_after_utc.timestamp()


def test_the_end_of_the_certificate_that_is_shown_is_told(write: Write) -> None:
    """Also of one that replaces another, and of one that clients refuse because it has ended."""
    files = write("s", 100)
    server = RemotingServer(RecordingHandler(), "127.0.0.1", 0, tls=ServerTls(TlsMode.ENFORCING, files))

    def told() -> object:
        return server.figures()["certificate_not_after_seconds"]

    first = told()
    assert first == {files.cert_path: end_of(files)}
    write("s", 200)
    assert told() != first
    assert told() == {files.cert_path: end_of(files)}
    ended = write("ended", -1)
    assert ServerTls(TlsMode.ENFORCING, ended).certificate_ends == {ended.cert_path: end_of(ended)}
    assert RemotingServer(RecordingHandler(), "127.0.0.1", 0).figures()["certificate_not_after_seconds"] == {}


class LogLine(logging.Handler):
    """Tells when a line with `text` has come."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.has_come = asyncio.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._text in record.getMessage():
            self.has_come.set()


async def told_to_client(server_tls: ServerTls | None, client_tls: ClientTls | None, in_log: str) -> str:
    """What the client is told, once the server's log has its line."""
    line = LogLine(in_log)
    logging.getLogger().addHandler(line)
    server = RemotingServer(RecordingHandler(echo), "127.0.0.1", 0, tls=server_tls)
    await server.start()
    client = RemotingClient(connect=client_tls.connect if client_tls is not None else None)
    try:
        with pytest.raises(RemotingError) as caught:
            await client.invoke(f"127.0.0.1:{server.port}", request(1, opaque=0), 10)
        async with asyncio.timeout(20):
            await line.has_come.wait()
        return str(caught.value).partition(": ")[2]
    finally:
        logging.getLogger().removeHandler(line)
        await client.close()
        await server.close()


def test_both_sides_read_why_they_do_not_meet(
    write: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files, ca = write("s", 100), f"{tmp_path}/ca.crt"
    stranger = Authority.make("stranger", 100)
    stranger.write(TlsFiles(key_path=f"{tmp_path}/x.key", cert_path=f"{tmp_path}/x.crt"))
    enforcing = ServerTls(TlsMode.ENFORCING, files)
    wants = ServerTls(TlsMode.ENFORCING, files, trust_cert_path=ca, needs_client=True)
    cases = [
        (enforcing, None, "it may take TLS only (tls.server.mode=enforcing)", "plaintext refused"),
        (wants, ClientTls(trust_cert_path=ca), "it may want a certificate", "shows no certificate"),
        (None, ClientTls(trust_cert_path=ca), "it takes plaintext only, or its log", "this port has none"),
        (
            enforcing,
            ClientTls(trust_cert_path=f"{tmp_path}/x.crt"),
            "trustCertPath must have its authority",
            "the other side has ended it",
        ),
        (
            ServerTls(TlsMode.ENFORCING, write("ended", -1)),
            ClientTls(trust_cert_path=ca),
            "certificate has expired",
            "the other side has ended it",
        ),
    ]

    async def main() -> None:
        for server_tls, client_tls, to_client, in_log in cases:
            assert to_client in await told_to_client(server_tls, client_tls, in_log)

    asyncio.run(main())


def test_an_answered_connection_that_ends_is_not_guessed_about() -> None:
    async def main() -> None:
        handler = RecordingHandler(
            lambda channel, command: echo(channel, command) if command.code == 1 else channel.close()
        )
        server = RemotingServer(handler, "127.0.0.1", 0)
        await server.start()
        client = RemotingClient()
        address = f"127.0.0.1:{server.port}"
        await client.invoke(address, request(1, opaque=0), 10)
        with pytest.raises(RemotingError, match=r"was answered$"):
            await client.invoke(address, request(2, opaque=0), 10)
        await client.close()
        await server.close()

    asyncio.run(main())
