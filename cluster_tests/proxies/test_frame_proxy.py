"""Whole messages between members are lost, doubled and overtaken, and nothing else happens to the stream."""

import socket
from collections.abc import Iterator
from random import Random

import pytest
from local_cluster import wait_for
from proxies.frame_proxy import FrameProxies
from proxies.frame_stream import Fate, FrameFault, FrameStream

from dledger.core.messages import (
    EntryRange,
    HeartBeatRequest,
    PushRequest,
    PushType,
)
from dledger.entry import Index, Pos, Term
from dledger.rpc.codec import encode_message
from dledger.rpc.connection import PeerConnection
from dledger.rpc.handshake import Handshake, Hello

HEARTBEAT, PUSH = 3, 5
PAYLOAD = b"e" * 5_000
MEMBERS = frozenset({"n0", "n1"})


def heartbeat(round: int) -> bytes:
    return b"".join(encode_message(HeartBeatRequest(Term(3), "n0", Index(7), round)))


def push(index: int) -> bytes:
    """An array of sixteen fields and more, with entries behind it."""
    entries = EntryRange(Index(index), Index(index), Pos(0), len(PAYLOAD), Term(3), 0)
    message = PushRequest(
        PushType.APPEND, Term(3), "n0", Index(index - 1), Term(3), 0, Index(0), 1, entries, None, None, None
    )
    return b"".join(encode_message(message, [PAYLOAD]))


def peer_connection(own: str, peer: str, *, dialling: bool) -> PeerConnection:
    hello = Hello(
        group="g",
        member_id=own,
        addressee_id=peer if dialling else "",
        nonce=own.encode() * 16,
        disk_uuid=own.encode() * 8,
    )
    handshake = Handshake(hello, secrets=(b"",), members=MEMBERS, dialling=dialling)
    return PeerConnection(handshake, frame_size_max=1 << 20)


class Picks(Random):
    """Dice that fall as a test says: whether a frame is taken, one after the other."""

    def __init__(self, picks: list[bool]) -> None:
        super().__init__()
        self._picks = iter(picks)

    def random(self) -> float:
        return 0.0 if next(self._picks) else 1.0


A, B, C, D = heartbeat(1), push(8), heartbeat(2), push(9)
FRAMES = (A, B, C, D)
CASES = [
    ([], FRAMES, {}),
    ([(Fate.DROP, "0101")], (A, C), {PUSH: 2}),
    ([(Fate.DROP, "1111")], (), {HEARTBEAT: 2, PUSH: 2}),
    ([(Fate.DUPLICATE, "1100")], (A, A, B, B, C, D), {HEARTBEAT: 1, PUSH: 1}),
    ([(Fate.REORDER, "1000")], (B, A, C, D), {HEARTBEAT: 1}),
    # What another one waits for does not wait itself.
    ([(Fate.REORDER, "1111")], (B, A, D, C), {HEARTBEAT: 2}),
    # Nothing has overtaken the last one yet, so it is not counted.
    ([(Fate.REORDER, "0001")], (A, B, C), {}),
    # The first that wants a frame has it, and the other is not asked.
    ([(Fate.DROP, "1000"), (Fate.DUPLICATE, "011")], (B, C, C, D, D), {HEARTBEAT: 2, PUSH: 1}),
    # What is lost overtakes nobody.
    ([(Fate.REORDER, "1000"), (Fate.DROP, "100")], (C, A, D), {HEARTBEAT: 1, PUSH: 1}),
]


@pytest.mark.parametrize("chunk", [1, 7, 1_000, 1 << 20])
@pytest.mark.parametrize(("faults", "goes_on", "counts"), CASES)
def test_a_fate_is_that_of_whole_frames_however_they_are_cut(
    chunk: int, faults: list[tuple[Fate, str]], goes_on: tuple[bytes, ...], counts: dict[int, int]
) -> None:
    made = [FrameFault(fate, 0.5, Picks([pick == "1" for pick in picks])) for fate, picks in faults]
    stream = FrameStream(lambda: made)
    sent = b"".join(FRAMES)
    got = b"".join(stream.receive(sent[at : at + chunk]) for at in range(0, len(sent), chunk))
    assert got == b"".join(goes_on)
    counted: dict[int, int] = {}
    for fault in made:
        for message_type, count in fault.counts.items():
            counted[message_type] = counted.get(message_type, 0) + count
    assert counted == counts


def test_what_is_lifted_lets_go_of_what_it_held() -> None:
    on = [FrameFault(Fate.REORDER, 1.0, Random(1))]
    stream = FrameStream(lambda: on)
    assert stream.receive(A) == b""
    on.clear()
    assert stream.receive(B) == B + A


def test_a_frame_without_a_fate_passes_before_its_end_has_come() -> None:
    stream = FrameStream(tuple)
    assert stream.receive(D[:100]) == D[:100]
    assert stream.receive(D[100:]) == D[100:]


def test_the_same_seed_takes_the_same_messages() -> None:
    def run(seed: int) -> bytes:
        fault = FrameFault(Fate.DROP, 0.5, Random(seed))
        stream = FrameStream(lambda: [fault])
        return b"".join(stream.receive(heartbeat(number)) for number in range(200))

    assert run(1) == run(1) != run(2)


class Ends:
    """Two members with a proxy between them, their handshake done."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            self.proxies = FrameProxies({("n0", "n1"): f"127.0.0.1:{port}"})
            host, _, proxy_port = self.proxies.addresses["n0", "n1"].rpartition(":")
            self.dialler = socket.create_connection((host, int(proxy_port)), timeout=60)
            self.acceptor, _ = listener.accept()
        self.acceptor.settimeout(60)

    def close(self) -> None:
        self.dialler.close()
        self.acceptor.close()
        self.proxies.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    made = Ends()
    yield made
    made.close()


def shake_hands(ends: Ends) -> None:
    dialler = peer_connection("n0", "n1", dialling=True)
    acceptor = peer_connection("n1", "n0", dialling=False)
    ends.dialler.sendall(dialler.data_to_send())
    for side, sock in ((acceptor, ends.acceptor), (dialler, ends.dialler), (acceptor, ends.acceptor)):
        while not (answer := side.data_to_send()):
            side.receive_data(sock.recv(1 << 16))
        sock.sendall(answer)
    while not dialler.established:
        dialler.receive_data(ends.dialler.recv(1 << 16))
    assert acceptor.established


def received(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


def test_hands_are_shaken_under_any_fate_and_a_lost_message_breaks_nothing(ends: Ends) -> None:
    lost = ends.proxies.meddle("n0", "n1", Fate.DROP, share=1.0, seed=1)
    doubled = ends.proxies.meddle("n1", "n0", Fate.DUPLICATE, share=1.0, seed=1)
    shake_hands(ends)
    ends.dialler.sendall(A + B)
    ends.acceptor.sendall(C)
    assert received(ends.dialler, 2 * len(C)) == C + C
    wait_for(lambda: lost.counts == {HEARTBEAT: 1, PUSH: 1}, 60, "two messages lost")
    lost.lift()
    ends.dialler.sendall(D)
    assert received(ends.acceptor, len(D)) == D
    assert doubled.counts == {HEARTBEAT: 1}


def test_each_direction_has_its_own_faults_and_the_end_of_a_connection_passes(ends: Ends) -> None:
    meddling = ends.proxies.meddle("n0", "n1", Fate.REORDER, share=1.0, seed=1)
    ends.acceptor.sendall(A + B)
    assert received(ends.dialler, len(A + B)) == A + B
    ends.dialler.sendall(A + B)
    assert received(ends.acceptor, len(A + B)) == B + A
    assert meddling.counts == {HEARTBEAT: 1}
    ends.acceptor.close()
    assert ends.dialler.recv(1) == b""


def test_a_peer_that_cannot_be_reached_is_a_connection_that_closes() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"127.0.0.1:{listener.getsockname()[1]}"
    with FrameProxies({("n0", "n1"): nobody}) as proxies:
        host, _, port = proxies.addresses["n0", "n1"].rpartition(":")
        with socket.create_connection((host, int(port)), timeout=60) as sock:
            assert sock.recv(1) == b""
