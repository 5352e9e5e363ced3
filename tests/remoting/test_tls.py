"""TLS and plaintext on one port, on loopback, under asyncio's loop and under uvloop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest
import uvloop

from remoting import first_bytes
from remoting.certificates import self_made_tls, write_self_made_certificate
from remoting.first_bytes import FirstBytesListener
from remoting.listening import listen_for_both
from remoting.tls import ServerTls, TlsError, TlsFiles, TlsMode

Run = Callable[[Coroutine[object, object, None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return written(tmp_path_factory.mktemp("tls"))


def written(folder: Path) -> TlsFiles:
    made = TlsFiles(key_path=str(folder / "server.key"), cert_path=str(folder / "server.crt"))
    write_self_made_certificate(made)
    return made


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


@contextlib.asynccontextmanager
async def echoing(tls: ServerTls, host: str = "127.0.0.1") -> AsyncIterator[int]:
    listener = await listen_for_both(Echo, host, 0, tls)
    try:
        yield port_of(listener)
    finally:
        listener.close()
        await listener.wait_closed()


def port_of(listener: FirstBytesListener) -> int:
    port: int = listener.sockets[0].getsockname()[1]
    return port


def trusting(files: TlsFiles) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=files.cert_path)


async def echoed(port: int, context: ssl.SSLContext | None, text: bytes = b"hello") -> bytes:
    """What comes back; nothing where the connection is refused."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=context, server_hostname="localhost" if context else None
        )
        writer.write(text)
        try:
            return await reader.readexactly(len(text))
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()


def test_one_port_takes_tls_and_plaintext(run: Run, files: TlsFiles) -> None:
    async def main() -> None:
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files)) as port:
            assert await echoed(port, None) == b"hello"
            assert await echoed(port, trusting(files)) == b"hello"
            assert await echoed(port, trusting(files), b"x" * 300_000) == b"x" * 300_000

    run(main())


def test_all_addresses_take_both(run: Run, files: TlsFiles) -> None:
    async def main() -> None:
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files), "0.0.0.0") as port:
            assert await echoed(port, None) == b"hello"
            assert await echoed(port, trusting(files)) == b"hello"

    run(main())


def test_enforcing_refuses_plaintext(run: Run, files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with echoing(ServerTls(TlsMode.ENFORCING, files)) as port:
            assert await echoed(port, None) == b""
            assert await echoed(port, trusting(files)) == b"hello"

    run(main())
    assert "plaintext refused" in caplog.text


def test_disabled_refuses_tls(run: Run, files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with echoing(ServerTls(TlsMode.DISABLED, files)) as port:
            assert await echoed(port, None) == b"hello"
            with pytest.raises((ConnectionError, ssl.SSLError)):
                await echoed(port, trusting(files))

    run(main())
    assert "TLS refused" in caplog.text


def test_the_protocol_is_agreed_on(run: Run, files: TlsFiles) -> None:
    async def main() -> None:
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files, alpn=("h2",))) as port:
            context = trusting(files)
            context.set_alpn_protocols(["http/1.1", "h2"])
            _, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context, server_hostname="localhost"
            )
            assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
            writer.close()
            await writer.wait_closed()

    run(main())


def test_a_handshake_that_is_none_ends_its_connection_alone(run: Run, files: TlsFiles) -> None:
    async def main() -> None:
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files)) as port:
            assert await echoed(port, None, b"\x16" * 100) == b""
            assert await echoed(port, trusting(files)) == b"hello"

    run(main())


def test_a_connection_that_says_nothing_is_closed(
    run: Run, files: TlsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_bytes, "FIRST_BYTES_SECONDS", 0.01)

    async def main() -> None:
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            async with asyncio.timeout(10):
                assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    run(main())


def test_close_ends_connections_that_said_nothing(run: Run, files: TlsFiles) -> None:
    async def main() -> None:
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files)) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            # Connections are accepted in order: this one is after it.
            assert await echoed(port, None) == b"hello"
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()

    run(main())


def test_a_new_certificate_serves_the_next_connection(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        files = written(tmp_path)
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files)) as port:
            old = trusting(files)
            assert await echoed(port, old) == b"hello"
            written(tmp_path)
            assert await echoed(port, trusting(files)) == b"hello"
            with pytest.raises(ssl.SSLCertVerificationError):
                await echoed(port, old)

    run(main())


def test_half_a_new_pair_leaves_the_old_one_in_use(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other").mkdir()
    other = written(tmp_path / "other")

    async def main() -> None:
        files = written(tmp_path)
        async with echoing(ServerTls(TlsMode.PERMISSIVE, files)) as port:
            old = trusting(files)
            os.replace(other.cert_path, files.cert_path)  # noqa: PTH105
            assert await echoed(port, old) == b"hello"
            os.replace(other.key_path, files.key_path)  # noqa: PTH105
            assert await echoed(port, trusting(files)) == b"hello"

    run(main())
    assert "the certificates stay as they were" in caplog.text


def test_a_self_made_certificate_is_warned_of_and_leaves_no_files(
    run: Run, caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def main() -> None:
        async with echoing(self_made_tls(TlsMode.PERMISSIVE)) as port:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            for _ in range(2):
                assert await echoed(port, context) == b"hello"

    run(main())
    assert "self-made certificate" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_a_self_made_key_is_its_owners_alone(files: TlsFiles) -> None:
    assert stat.S_IMODE(os.stat(files.key_path).st_mode) == 0o600  # noqa: PTH116


def test_a_certificate_names_the_hosts_that_are_dialled(tmp_path: Path) -> None:
    files = TlsFiles(key_path=str(tmp_path / "k"), cert_path=str(tmp_path / "c"))
    write_self_made_certificate(files, hosts=["proxy.example", "10.1.2.3"])
    names = {name for _, name in ssl._ssl._test_decode_cert(files.cert_path)["subjectAltName"]}  # type: ignore[attr-defined]
    assert {"localhost", "127.0.0.1", "proxy.example", "10.1.2.3"} <= names


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    files = TlsFiles(key_path=str(tmp_path / "no.key"), cert_path=str(tmp_path / "no.crt"))
    with pytest.raises(TlsError, match=r"no\.key cannot be read: no such file or directory"):
        ServerTls(TlsMode.PERMISSIVE, files)


def test_a_file_that_goes_while_it_is_read_is_no_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda path: b"BEGIN CERTIFICATE-----BEGIN PRIVATE KEY-----")
    gone = TlsFiles(key_path=f"{tmp_path}/no.key", cert_path=f"{tmp_path}/no.crt")
    with pytest.raises(TlsError, match="are no certificate with its key"):
        ServerTls(TlsMode.PERMISSIVE, gone)


def test_files_that_are_no_pair_are_named(tmp_path: Path, files: TlsFiles) -> None:
    other = written(tmp_path)
    with pytest.raises(TlsError, match="are no certificate with its key"):
        ServerTls(TlsMode.PERMISSIVE, TlsFiles(key_path=other.key_path, cert_path=files.cert_path))


def test_a_port_that_is_taken_is_refused(files: TlsFiles) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        async def main() -> None:
            await listen_for_both(Echo, "127.0.0.1", port, ServerTls(TlsMode.PERMISSIVE, files))

        with pytest.raises(OSError, match="in use"):
            asyncio.run(main())
