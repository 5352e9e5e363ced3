"""Remoting over TLS on loopback: whom a client trusts, whom a server lets in, and what hostile bytes cost others."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest
import uvloop
from remoting_fakes import RecordingHandler, echo

from remoting import first_bytes
from remoting.blocking_connection import BlockingConnection
from remoting.certificates import Authority
from remoting.channel import Channel
from remoting.client import RemotingClient
from remoting.client_tls import ClientTls
from remoting.codes import RequestCode
from remoting.errors import RemotingConnectError, RemotingError, RemotingUntrustedError
from remoting.frame.command import RemotingCommand, request
from remoting.server import RemotingServer
from remoting.tls import ServerTls, TlsError, TlsFiles, TlsLimits, TlsMode

Run = Callable[[Coroutine[object, object, None]], None]
HOSTS = ["127.0.0.1"]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    runner: Run = request.param
    return runner


class Cluster:
    """An authority, a server's certificate and a client's, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.trust = self.files("ca").cert_path
        self.authority = Authority.make("test", 1)
        self.authority.write(self.files("ca"))
        self.issue("server", HOSTS)
        self.issue("client")

    def files(self, name: str) -> TlsFiles:
        return TlsFiles(key_path=f"{self.folder}/{name}.key", cert_path=f"{self.folder}/{name}.crt")

    def issue(self, name: str, hosts: list[str] | None = None) -> None:
        self.authority.issue(self.files(name), name, 1, hosts or [])

    def server(self, mode: TlsMode = TlsMode.ENFORCING, *, needs_client: bool = False) -> ServerTls:
        trust = self.trust if needs_client else None
        return ServerTls(mode, self.files("server"), trust_cert_path=trust, needs_client=needs_client)

    def client(self, name: str | None = None) -> ClientTls:
        return ClientTls(trust_cert_path=self.trust, files=self.files(name) if name else None)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(tmp_path_factory.mktemp("tls"))


@contextlib.asynccontextmanager
async def serving(
    tls: ServerTls | None, answer: Callable[[Channel, RemotingCommand], None] = echo
) -> AsyncIterator[RemotingServer]:
    server = RemotingServer(RecordingHandler(answer), "127.0.0.1", 0, tls=tls)
    await server.start()
    try:
        yield server
    finally:
        await server.close()


async def answer_of(server: RemotingServer, tls: ClientTls | None) -> int:
    client = RemotingClient(connect=tls.connect if tls is not None else None)
    try:
        return (await client.invoke(f"127.0.0.1:{server.port}", request(1, opaque=0), 10)).code
    finally:
        await client.close()


async def refusal_of(server: RemotingServer, tls: ClientTls | None) -> str:
    with pytest.raises(RemotingConnectError) as caught:
        await answer_of(server, tls)
    return str(caught.value).partition(": ")[2]


def test_a_client_and_a_server_that_trust_each_other_talk(run: Run, certificates: Cluster) -> None:
    async def main() -> None:
        async with serving(certificates.server(needs_client=True)) as server:
            assert await answer_of(server, certificates.client("client")) == 0

    run(main())


def test_many_commands_and_a_large_one_pass(run: Run, certificates: Cluster) -> None:
    async def main() -> None:
        async with serving(certificates.server()) as server:
            client = RemotingClient(connect=certificates.client().connect)
            commands = [request(1, body=bytes(size), opaque=0) for size in (0, 1, 17_000, 3_000_000)] * 5
            answers = await client.invoke_many(f"127.0.0.1:{server.port}", commands, 30)
            assert [len(answer.body) for answer in answers] == [len(command.body) for command in commands]  # type: ignore[union-attr]
            await client.close()

    run(main())


def test_a_client_refuses_a_server_of_another_authority(
    run: Run, certificates: Cluster, tmp_path: Path
) -> None:
    stranger = Cluster(tmp_path)

    async def main() -> None:
        async with serving(stranger.server()) as server:
            assert await refusal_of(server, certificates.client()) == (
                "no TLS: the certificate is not trusted: unable to get local issuer certificate; "
                "trustCertPath must have its authority"
            )

    run(main())


def test_a_client_refuses_a_certificate_of_another_host(
    run: Run, certificates: Cluster, tmp_path: Path
) -> None:
    other = Cluster(tmp_path)
    other.issue("server", ["elsewhere.example"])

    async def main() -> None:
        async with serving(other.server()) as server:
            assert "not valid for '127.0.0.1'" in await refusal_of(server, other.client())
            lenient = ClientTls(trust_cert_path=other.trust, checks_host_name=False)
            assert await answer_of(server, lenient) == 0

    run(main())


def test_a_client_that_checks_nothing_is_served(run: Run, certificates: Cluster) -> None:
    async def main() -> None:
        async with serving(certificates.server()) as server:
            assert await answer_of(server, ClientTls(checks_server=False)) == 0

    run(main())


def test_a_server_that_wants_a_certificate_refuses_a_client_without_one(
    run: Run, certificates: Cluster
) -> None:
    async def main() -> None:
        async with serving(certificates.server(needs_client=True)) as server:
            old = ClientTls(
                trust_cert_path=certificates.trust, limits=TlsLimits(versions=(ssl.TLSVersion.TLSv1_2,))
            )
            await refusal_of(server, old)
            assert not server.channels

    run(main())


def test_a_client_with_tls_is_told_that_a_plain_server_has_none(run: Run, certificates: Cluster) -> None:
    async def main() -> None:
        async with serving(None) as server:
            await refusal_of(server, certificates.client())

    run(main())


def test_what_is_agreed_on_has_limits(run: Run, certificates: Cluster) -> None:
    async def main() -> None:
        newest = ServerTls(
            TlsMode.ENFORCING,
            certificates.files("server"),
            limits=TlsLimits(versions=(ssl.TLSVersion.TLSv1_3,)),
        )
        async with serving(newest) as server:
            old = TlsLimits(versions=(ssl.TLSVersion.TLSv1_2,))
            told = await refusal_of(server, ClientTls(trust_cert_path=certificates.trust, limits=old))
            assert (
                told == "the peer has ended the TLS handshake: it takes plaintext only, or its log says why"
            )
            assert await answer_of(server, certificates.client()) == 0

    run(main())


def test_further_ports_have_tls_as_the_first_one(run: Run, certificates: Cluster) -> None:
    async def main() -> None:
        async with serving(certificates.server()) as server:
            await server.listen_also(0)
            server.port = server._others[0].sockets[0].getsockname()[1]
            assert await answer_of(server, certificates.client()) == 0

    run(main())


def test_a_replaced_trust_counts_for_the_next_connection_of_both_sides(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        cluster = Cluster(tmp_path)
        async with serving(cluster.server(needs_client=True)) as server:
            former = cluster.client("client")
            assert await answer_of(server, former) == 0
            renewed = Cluster(tmp_path)  # another authority, and all certificates anew
            assert await answer_of(server, former) == 0, "its files have been read again, too"
            assert await answer_of(server, renewed.client("client")) == 0

    run(main())


def test_an_unfinished_handshake_ends_by_its_deadline(
    run: Run, certificates: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_bytes, "HANDSHAKE_SECONDS", 0.05)

    async def main() -> None:
        async with serving(certificates.server()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"\x16\x03\x01\x02\x00\x01")  # a ClientHello that never ends
            async with asyncio.timeout(10):
                with contextlib.suppress(OSError):
                    assert await reader.read() == b""
            writer.close()
            assert await answer_of(server, certificates.client()) == 0

    run(main())


@pytest.mark.parametrize(
    "hostile",
    [
        b"\x16",
        b"\x16" * 70_000,
        b"\x16\x03\x01\x00\x05hello" * 3,
        b"\x16\x03\x01\xff\xff" + bytes(70_000),
        b"\x16\x03\x03\x00\x04\x01\x00\x00\x00",
        b"\x15\x03\x01\x00\x02\x02\x28",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_hostile_bytes_end_their_connection_and_cost_others_nothing(
    run: Run, certificates: Cluster, hostile: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with serving(certificates.server()) as server:
            client = RemotingClient(connect=certificates.client().connect)
            address = f"127.0.0.1:{server.port}"
            await client.invoke(address, request(1, opaque=0), 10)
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(hostile)
                writer.write_eof()
                async with asyncio.timeout(10):
                    with contextlib.suppress(OSError):
                        await reader.read()
                writer.close()
            assert (await client.invoke(address, request(1, opaque=0), 10)).code == 0
            assert len(server.channels) == 1
            await client.close()

    run(main())
    assert not [line for line in caplog.records if line.levelno >= logging.ERROR or line.exc_info]


def test_the_oldest_of_too_many_connections_that_are_not_open_goes(
    run: Run, certificates: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(first_bytes, "UNOPENED_MAX", 4)

    async def main() -> None:
        async with serving(certificates.server()) as server:
            for begun in (b"", b"\x16\x03\x01"):
                waiting = []
                for _ in range(5):
                    waiting.append(await asyncio.open_connection("127.0.0.1", server.port))
                    waiting[-1][1].write(begun)
                assert await answer_of(server, certificates.client()) == 0
                async with asyncio.timeout(10):
                    with contextlib.suppress(OSError):
                        assert await waiting[0][0].read() == b""
                for _, writer in waiting:
                    writer.close()

    run(main())


def test_what_a_client_does_not_take_counts_as_in_plaintext(run: Run, certificates: Cluster) -> None:
    """The figure by which those who read nothing are found, and slowed down, or closed."""
    size = 12 << 20

    async def main() -> None:
        answered = asyncio.Event()

        def answer(channel: Channel, command: RemotingCommand) -> None:
            echo(channel, command)
            answered.set()

        async with serving(certificates.server(), answer) as server:
            silent = socket.socket()
            silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            silent.connect(("127.0.0.1", server.port))
            loop = asyncio.get_running_loop()
            context = certificates.client().context
            wrapped = await loop.run_in_executor(
                None, lambda: context.wrap_socket(silent, server_hostname="127.0.0.1")
            )
            await loop.run_in_executor(None, wrapped.sendall, request(1, body=bytes(size), opaque=1).encode())
            async with asyncio.timeout(20):
                await answered.wait()
            (channel,) = server.channels
            in_kernels = 6 << 20  # what both sockets may hold, at the most
            assert size - in_kernels < channel.pending_write_size <= size + (1 << 20)
            wrapped.close()

    run(main())


def test_a_trust_without_a_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("")
    with pytest.raises(TlsError, match="empty has no certificate to trust"):
        ClientTls(trust_cert_path=f"{tmp_path}/empty")
    with pytest.raises(TlsError, match="gone has no certificate to trust: no such file"):
        ClientTls(trust_cert_path=f"{tmp_path}/gone")


def test_a_blocking_connection_speaks_tls(run: Run, certificates: Cluster) -> None:
    tls = certificates.client().context

    def ask(address: str) -> list[tuple[int, str]]:
        with contextlib.closing(BlockingConnection(address, 10, tls)) as connection:
            requests = [({"number": str(number)}, b"x" * 100_000) for number in range(3)]
            opaques = connection.send_many(RequestCode.SEND_MESSAGE, requests)
            answers = [connection.receive(10) for _ in opaques]
        assert [answer.opaque for answer in answers] == opaques
        return [(len(answer.body), answer.ext_fields["number"]) for answer in answers]

    async def check() -> None:
        async with serving(certificates.server()) as server:
            answers = await asyncio.to_thread(ask, f"127.0.0.1:{server.port}")
        assert answers == [(100_000, "0"), (100_000, "1"), (100_000, "2")]

    run(check())


def blocking_refusal_of(address: str, tls: ssl.SSLContext | None) -> RemotingError:
    with (
        pytest.raises(RemotingError) as caught,
        contextlib.closing(BlockingConnection(address, 10, tls)) as connection,
    ):
        connection.call(RequestCode.SEND_MESSAGE, {}, 10)
    return caught.value


def test_a_blocking_connection_says_why_the_two_do_not_meet(run: Run, certificates: Cluster) -> None:
    async def check() -> None:
        async def refusal(server: RemotingServer, tls: ClientTls | None) -> RemotingError:
            context = tls.context if tls is not None else None
            return await asyncio.to_thread(blocking_refusal_of, f"127.0.0.1:{server.port}", context)

        async with serving(certificates.server()) as server:
            untrusted = await refusal(server, ClientTls())
            assert isinstance(untrusted, RemotingUntrustedError)
            assert "unable to get local issuer certificate; trustCertPath must have" in str(untrusted)
            assert "it may take TLS only (tls.server.mode=enforcing)" in str(await refusal(server, None))
        async with serving(certificates.server(needs_client=True)) as server:
            no_certificate = await refusal(server, certificates.client())
            assert "it may want a certificate that it trusts (tls.client.certPath)" in str(no_certificate)
        async with serving(None) as server:
            no_tls = await refusal(server, certificates.client())
            assert isinstance(no_tls, RemotingConnectError)
            assert "it takes plaintext only, or its log says why" in str(no_tls)

    run(check())
