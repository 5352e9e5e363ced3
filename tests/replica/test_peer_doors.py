"""What members prove to each other while the group serves: certificates and secrets, changed member by member."""

import asyncio
from collections.abc import Iterable
from pathlib import Path

import pytest
import uvloop
from dledger_servers import Servers, append

from broker.peer_door import peer_door
from dledger.cluster_secrets import ClusterSecrets
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus
from dledger.door import Door, PlainDoor
from mq.tls_files import TlsDirectory
from remoting.tls import TlsMode
from remoting.tls_settings import TlsConfig

pytestmark = pytest.mark.slow

NAMES = ("n0", "n1", "n2")


def member_door(directory: TlsDirectory, mode: TlsMode) -> Door:
    directory.make([])
    files = directory.files("localhost")
    config = TlsConfig(
        server_key_path=files.key_path,
        server_cert_path=files.cert_path,
        server_trust_cert_path=directory.files("ca").cert_path,
    )
    return peer_door(mode, config)


async def serves(servers: Servers) -> None:
    """Also after a change of leader in between, which a closed link may cost."""
    await servers.until(servers.linked)
    while True:
        leader = await servers.elect()
        if await append(leader, [b"one more"]) is AppendStatus.SUCCESS:
            return


async def meet_anew(servers: Servers, names: Iterable[PeerId]) -> None:
    """All links of these members end, and are made again."""
    for name in names:
        for link in list(servers.running[name]._links):
            link.abort("the test has them meet anew")
    await servers.until(servers.linked)


def test_a_group_with_tls_elects_replicates_and_survives_its_leader(tmp_path: Path) -> None:
    tls = TlsDirectory(tmp_path / "tls")

    async def run() -> None:
        doors = {name: member_door(tls, TlsMode.ENFORCING) for name in NAMES}
        async with Servers(tmp_path, doors=doors) as servers:
            await servers.start()
            await serves(servers)
            leader = await servers.elect()
            assert await append(leader, [bytes(300_000)] * 3) is AppendStatus.SUCCESS
            for link in leader._links:
                assert link._transport is not None
                assert link._transport.get_extra_info("ssl_object") is not None
            await servers.running.pop(leader.config.self_id).close()
            await servers.elect()
            await servers.start(leader.config.self_id)
            await serves(servers)
            await servers.until(servers.converged)
            await servers.stop()
            assert servers.data_files("n0") == servers.data_files("n1") == servers.data_files("n2")

    uvloop.run(run())


@pytest.mark.parametrize("stranger", ["plaintext", "another authority"])
def test_a_member_without_a_trusted_certificate_is_kept_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stranger: str
) -> None:
    caplog.set_level("INFO")
    tls = TlsDirectory(tmp_path / "tls")
    theirs: Door = PlainDoor()
    if stranger != "plaintext":
        theirs = member_door(TlsDirectory(tmp_path / "theirs"), TlsMode.ENFORCING)

    async def run() -> None:
        doors = {name: member_door(tls, TlsMode.ENFORCING) for name in NAMES} | {"n2": theirs}
        async with Servers(tmp_path, doors=doors) as servers:
            await servers.start()
            refusal = "plaintext refused" if stranger == "plaintext" else "TLS handshake failed"
            await servers.until(lambda: refusal in caplog.text)
            await servers.until(lambda: servers.running["n0"].status()["links"] == ["n1"])
            assert servers.running["n2"].status()["links"] == []
            await servers.stop()

    uvloop.run(run())


def test_a_group_that_serves_is_moved_to_tls_member_by_member(tmp_path: Path) -> None:
    tls = TlsDirectory(tmp_path / "tls")

    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            await serves(servers)
            for mode in (TlsMode.PERMISSIVE, TlsMode.ENFORCING):
                for name in NAMES:
                    await servers.stop(name)
                    servers.doors[name] = member_door(tls, mode)
                    await servers.start(name)
                    await serves(servers)
            for server in servers.running.values():
                assert all(link._transport.get_extra_info("ssl_object") for link in server._links)  # type: ignore[union-attr]
            await servers.stop()

    uvloop.run(run())


def test_the_secret_is_replaced_while_the_group_serves(tmp_path: Path) -> None:
    """In three changes, each at all members before the next. Any two that meet have one that both accept."""
    known = dict.fromkeys(NAMES, (b"old",))
    secrets = {name: ClusterSecrets(lambda name=name: known[name]) for name in NAMES}  # type: ignore[misc]

    async def run() -> None:
        async with Servers(tmp_path, secrets) as servers:
            await servers.start()
            await serves(servers)
            leaders = {(await servers.elect()).config.self_id}
            for change in ((b"old", b"new"), (b"new", b"old"), (b"new",)):
                for name in NAMES:
                    known[name] = change
                    await meet_anew(servers, [name])
                    await serves(servers)
                    leaders.add((await servers.elect()).config.self_id)
            assert {server.status()["cluster_secrets"] for server in servers.running.values()} == {1}
            known["n0"] = (b"old",)
            servers.running["n0"].replica.leave(servers.running["n0"].now_ms())
            for link in list(servers.running["n0"]._links):
                link.abort("the test has them meet anew")
            await servers.until(lambda: not servers.running["n1"].status()["links"].count("n0"))
            await servers.stop()

    uvloop.run(run())


def test_secrets_that_cannot_be_read_stay_as_they_were(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[tuple[bytes, ...] | ValueError] = [(b"one",), ValueError("no such file"), (b"two", b"one")]

    def read() -> tuple[bytes, ...]:
        answer = answers.pop(0)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    secrets = ClusterSecrets(read)
    assert secrets.read_again() == (b"one",)
    assert "the cluster secrets stay as they were: no such file" in caplog.text
    assert secrets.read_again() == (b"two", b"one")
    assert "one" not in repr(secrets)


def test_an_empty_port_is_no_reason_to_go_back_to_plaintext(tmp_path: Path) -> None:
    """A member that is down says nothing about TLS; one that closes the handshake does."""
    door = member_door(TlsDirectory(tmp_path / "tls"), TlsMode.PERMISSIVE)

    async def run() -> None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        seen = []
        for _ in range(4):
            try:
                await door.connect(asyncio.Protocol, "127.0.0.1", port)
                seen.append("plaintext")
            except OSError:
                seen.append("TLS failed")
        assert seen == ["TLS failed", "plaintext"] * 2
        server.close()
        await server.wait_closed()
        for _ in range(3):
            with pytest.raises(ConnectionRefusedError):
                await door.connect(asyncio.Protocol, "127.0.0.1", port)

    uvloop.run(run())
