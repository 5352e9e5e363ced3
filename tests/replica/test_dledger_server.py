"""Three servers in one process over real loopback sockets: links, threads and the end of a member."""

import asyncio
import threading
from pathlib import Path

import pytest
import uvloop
from dledger_servers import Servers, append, begin_append

from dledger.cluster_secrets import fixed_secret
from dledger.core.messages import PeerId
from dledger.core.output import AppendStatus
from dledger.core.refusal import Refusal, RefusalReason
from dledger.entry import Index, verify_entries
from dledger.peer_link import PeerLink
from dledger.rpc.codec import encode_message
from dledger.rpc.connection import PeerConnection
from dledger.rpc.handshake import Handshake, Hello
from dledger.rpc.requests import GetRequest, GetResponse, MetadataRequest, MetadataResponse
from dledger.rpc.response_code import ResponseCode
from dledger.server import DLedgerServer, make_clock
from remoting.address import Address

pytestmark = pytest.mark.slow


async def read_index(server: DLedgerServer) -> Index | Refusal:
    done: asyncio.Future[Index | Refusal] = asyncio.get_running_loop().create_future()
    server.replica.read_index(done.set_result, server.now_ms())
    return await done


async def ask(address: Address, addressee: PeerId, *requests: object) -> list[tuple[object, bytes]]:
    """As a reader that is no member."""
    hello = Hello(group="g", member_id="", addressee_id=addressee, nonce=b"r" * 32)
    handshake = Handshake(hello, secrets=(b"",), members=frozenset(), dialling=True)
    connection = PeerConnection(handshake, frame_size_max=1 << 24)
    reader, writer = await asyncio.open_connection(address.host, address.port)
    answers: list[tuple[object, bytes]] = []
    try:
        async with asyncio.timeout(20):
            while not connection.established:
                writer.write(connection.data_to_send())
                connection.receive_data(await reader.read(65536))
            for request in requests:
                writer.writelines(encode_message(request))  # type: ignore[arg-type]
            while len(answers) < len(requests):
                answers += connection.receive_data(await reader.read(65536))
    finally:
        writer.close()
        await writer.wait_closed()
    return answers


def test_three_servers_elect_replicate_survive_their_leader_and_agree_byte_by_byte(tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            leader = await servers.elect()
            for number in range(50):
                assert await append(leader, [b"body %d" % number] * 3) is AppendStatus.SUCCESS
            first_term = leader.replica.member.curr_term
            first = leader.config.self_id
            # As a kill would: connections close, nothing is synced or said.
            await servers.running.pop(first).close()
            second = await servers.elect()
            assert second.replica.member.curr_term > first_term
            for number in range(50):
                assert await append(second, [b"more %d" % number]) is AppendStatus.SUCCESS
            await servers.start(first)
            await servers.until(servers.converged)
            await servers.stop()
            assert servers.data_files("n0") == servers.data_files("n1") == servers.data_files("n2")
            assert servers.failures == []

    uvloop.run(run())


def test_a_leader_that_is_to_stop_hands_over_and_no_append_is_left_without_its_end(tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            leader = await servers.elect()
            under_way = [begin_append(leader, [b"body %d" % number]) for number in range(20)]
            assert not any(one.done() for one in under_way)
            assert await leader.hand_over()
            assert {await one for one in under_way} == {AppendStatus.SUCCESS}
            await servers.stop(leader.config.self_id)
            second = await servers.elect()
            assert second.replica.member.curr_term == leader.replica.member.curr_term, (
                "elected before the stop"
            )
            assert not await next(
                server for server in servers.running.values() if server is not second
            ).hand_over(), "it does not lead"
            await servers.stop()
            assert servers.failures == []

    uvloop.run(run())


def test_a_leader_whose_followers_have_gone_stops_without_waiting_for_them(tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            leader = await servers.elect()
            await servers.stop(*(name for name in servers.peers if name != leader.config.self_id))
            assert not await leader.hand_over()
            await servers.stop()
            assert servers.failures == []

    uvloop.run(run())


def test_a_reader_gets_metadata_and_verifiable_committed_entries(tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            leader = await servers.elect()
            await append(leader, [b"one", b"two", b"three"])
            name = leader.config.self_id
            (metadata, _), (got, entries), (beyond, _) = await ask(
                servers.peers[name],
                name,
                MetadataRequest(1),
                GetRequest(2, Index(1), 1 << 20),
                GetRequest(3, Index(99), 1 << 20),
            )
            assert isinstance(metadata, MetadataResponse)
            assert metadata.leader_id == name
            assert metadata.peers == {peer: str(address) for peer, address in servers.peers.items()}
            assert isinstance(got, GetResponse)
            assert (got.code, got.first_index, got.last_index) == (ResponseCode.SUCCESS, 1, 3)
            verified = verify_entries(
                entries, first_index=got.first_index, first_pos=got.first_pos, prev_chain=got.previous_chain
            )
            assert verified.chain == leader.replica.log.ledger_end_chain
            assert isinstance(beyond, GetResponse)
            assert beyond.code is ResponseCode.INDEX_OUT_OF_RANGE
            await servers.stop()

    uvloop.run(run())


def test_a_member_with_another_secret_is_kept_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    secrets = {name: fixed_secret(b"not ours" if name == "n2" else b"ours") for name in ("n0", "n1", "n2")}

    async def run() -> None:
        async with Servers(tmp_path, secrets) as servers:
            await servers.start()
            await servers.until(lambda: "pyDLedgerClusterSecret" in caplog.text)
            await servers.until(lambda: servers.running["n0"].status()["links"] == ["n1"])
            assert servers.running["n2"].status()["links"] == []
            assert servers.running["n0"].replica.formation.group is None
            await servers.stop()

    uvloop.run(run())


def test_members_stay_as_they_are_while_one_speaks_a_wire_version_without_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            with monkeypatch.context() as former_release:
                former_release.setattr("dledger.server.WIRE_VERSION_MAX", 1)
                await servers.start()
                leader = await servers.elect()
                others = sorted(servers.peers.keys() - {leader.config.self_id})
                await servers.until(lambda: sorted(leader.status()["links"]) == others)
            refusal = leader.replica.remove_member(others[0], lambda status: None, leader.now_ms())
            assert refusal is not None
            assert refusal.reason is RefusalReason.MEMBER_OUTDATED
            assert refusal.text.startswith(f"{others[1]} spoke wire version 1")
            await servers.stop()
            assert servers.failures == []

    uvloop.run(run())


def test_members_tell_each_other_what_they_know_beyond_earlier_releases(tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(tmp_path, features={"n0": ["notes", "votes"], "n1": ["notes"]}) as servers:
            await servers.start()
            await servers.elect()
            await servers.until(servers.converged)
            n0, n1, n2 = (server.replica for _, server in sorted(servers.running.items()))
            await servers.until(lambda: n0.members_without("notes") == ["n2"])
            await servers.until(lambda: n1.members_without("notes") == ["n2"])
            await servers.until(lambda: n2.members_without("notes") == [])
            assert n1.members_without("votes") == ["n2"]
            assert n2.members_without("votes") == ["n1"]
            await servers.stop()

    uvloop.run(run())


def test_each_member_can_be_told_how_far_a_read_has_to_reach(tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            leader = await servers.elect()
            await servers.until(servers.converged)
            for number in range(3):
                assert await append(leader, [b"%d" % number]) is AppendStatus.SUCCESS
                index = leader.replica.log.ledger_end_index
                reads = await asyncio.gather(*(read_index(server) for server in servers.running.values()))
                assert reads == [index] * 3
            await servers.stop()
            assert servers.failures == []

    uvloop.run(run())


def test_a_leader_of_the_former_release_answers_for_itself_and_cannot_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            with monkeypatch.context() as former_release:
                former_release.setattr("dledger.server.WIRE_VERSION_MAX", 2)
                await servers.start()
                leader = await servers.elect()
                await servers.until(lambda: servers.converged() and len(leader.status()["links"]) == 2)
            follower = next(server for server in servers.running.values() if server is not leader)
            refusal = await read_index(follower)
            assert isinstance(refusal, Refusal)
            assert refusal.reason is RefusalReason.MEMBER_OUTDATED
            assert await read_index(leader) == leader.replica.log.ledger_end_index
            await servers.stop()

    uvloop.run(run())


def test_a_member_restarted_at_once_is_found_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            leader = await servers.elect()
            follower = next(name for name in servers.running if name != leader.config.self_id)
            await servers.stop(follower)
            assert await append(leader, [b"without it"]) is AppendStatus.SUCCESS
            await servers.start(follower)
            await servers.until(servers.converged)
            assert servers.leader() is leader
            await servers.stop()

    uvloop.run(run())


def test_a_peer_that_shows_another_disk_is_heard_over_no_earlier_connection(tmp_path: Path) -> None:
    """Two processes under one name: what either says must not count as said by the other's disk."""

    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            await servers.elect()
            await servers.until(servers.converged)
            server, group = servers.running["n0"], servers.running["n1"].replica.formation.group
            assert group is not None
            await servers.until(lambda: "n1" in server._incoming and "n1" in server._outgoing)
            earlier = [server._incoming["n1"], server._outgoing["n1"]]
            hello = Hello(
                group="g", member_id="n1", addressee_id="n0", nonce=b"n" * 32, disk_uuid=b"another disk 16b",
                group_uuid=group.group_uuid, pairs=group.pairs, data_file_size=1 << 20, begin_pos=0,
            )  # fmt: skip
            handshake = Handshake(hello, secrets=(b"",), members=frozenset(servers.peers), dialling=True)
            connection = PeerConnection(handshake, frame_size_max=1 << 24)
            address = servers.peers["n0"]
            reader, writer = await asyncio.open_connection(address.host, address.port)
            async with asyncio.timeout(20):
                while not connection.established:
                    writer.write(connection.data_to_send())
                    connection.receive_data(await reader.read(65536))
                for link in earlier:
                    await link.lost.wait()
            assert {link.lost_reason for link in earlier} <= {
                "the peer has dialled again",
                "the peer has shown another disk since",
            }
            writer.close()
            await writer.wait_closed()
            await servers.until(servers.converged)
            await servers.stop()

    uvloop.run(run())


def test_a_connection_that_is_given_up_as_it_is_made_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[PeerId, asyncio.Task[None]]] = []
    link_made = DLedgerServer.link_made

    def end_at_once(server: DLedgerServer, link: PeerLink) -> None:
        link_made(server, link)
        if link.dialled is not None and not ends:
            ends.append((server.config.self_id, asyncio.get_running_loop().create_task(server.stop())))

    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            await servers.until(lambda: ends)
            [(name, end)] = ends
            async with asyncio.timeout(20):
                await end
            del servers.running[name]
            await servers.stop()

    monkeypatch.setattr(DLedgerServer, "link_made", end_at_once)
    uvloop.run(run())


def test_a_closed_server_begins_no_job_that_would_keep_its_process_alive(tmp_path: Path) -> None:
    class Job:
        kind = "late"

        def run(self) -> None: ...

    async def run() -> None:
        async with Servers(tmp_path) as servers:
            await servers.start()
            leader = await servers.elect()
            await leader.close()
            leader.submit(Job())
            name = leader.config.self_id
            assert [thread.name for thread in threading.enumerate() if thread.name.startswith(name)] == []
            del servers.running[name]
            await servers.stop()

    uvloop.run(run())


def test_a_process_that_was_held_up_between_two_clocks_does_not_go_wrong_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held_up_ns = iter([7_000_000, 0, 9_000_000, 0, 30_000, 0, 5_000_000, 0, 8_000_000, 0])
    now_ns = 0

    def monotonic_ns() -> int:
        nonlocal now_ns
        now_ns += 100
        read = now_ns
        now_ns += next(held_up_ns, 0)
        return read

    monkeypatch.setattr("dledger.server.time.monotonic_ns", monotonic_ns)
    monkeypatch.setattr("dledger.server.time.time_ns", lambda: 1_700_000_000_000_500_000 + now_ns)
    clock = make_clock()
    assert clock() == (1_700_000_000_000_500_000 + now_ns) // 1_000_000
