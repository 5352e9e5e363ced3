"""Two ends of a peer connection without a network, for tests of the codec and of the handshake."""

from collections.abc import Mapping, Sequence
from typing import Any

from dledger.errors import DLedgerError
from dledger.rpc.connection import PeerConnection
from dledger.rpc.handshake import Handshake, Hello

MEMBERS = frozenset({"n0", "n1", "n2"})


def hello(member_id: str, addressee_id: str = "", **changes: Any) -> Hello:
    values: dict[str, Any] = {
        "group": "broker-a",
        "member_id": member_id,
        "addressee_id": addressee_id,
        "nonce": member_id.encode().ljust(32, b"."),
        "disk_uuid": member_id.encode().ljust(16, b"!"),
        "data_file_size": 1 << 30,
    }
    return Hello(**{**values, **changes})


def pair(
    dialler: Hello | None = None,
    acceptor: Hello | None = None,
    *,
    secrets: tuple[Sequence[bytes], Sequence[bytes]] = ((b"s",), (b"s",)),
    frame_size_max: int = 1 << 20,
    members: Mapping[str, frozenset[str]] | None = None,
) -> tuple[PeerConnection, PeerConnection]:
    ends = []
    for own, known_secrets, dialling in (
        (dialler or hello("n0", "n1"), secrets[0], True),
        (acceptor or hello("n1"), secrets[1], False),
    ):
        known = (members or {}).get(own.member_id, MEMBERS)
        handshake = Handshake(own, secrets=known_secrets, members=known, dialling=dialling)
        ends.append(PeerConnection(handshake, frame_size_max=frame_size_max))
    return ends[0], ends[1]


def shake(dialler: PeerConnection, acceptor: PeerConnection) -> None:
    """Carries bytes both ways until both are silent. An end's own refusal is raised, after the other heard it."""
    refusal: DLedgerError | None = None
    while True:
        to_acceptor, to_dialler = dialler.data_to_send(), acceptor.data_to_send()
        if not to_acceptor and not to_dialler:
            break
        for end, data in ((acceptor, to_acceptor), (dialler, to_dialler)):
            if data:
                try:
                    assert end.receive_data(data) == []
                except DLedgerError as error:
                    refusal = refusal or error
    if refusal is not None:
        raise refusal


def connected_pair(*, frame_size_max: int = 1 << 20) -> tuple[PeerConnection, PeerConnection]:
    dialler, acceptor = pair(frame_size_max=frame_size_max)
    shake(dialler, acceptor)
    assert dialler.established
    assert acceptor.established
    return dialler, acceptor
