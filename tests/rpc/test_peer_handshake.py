"""Who may speak on a peer port, and what the others are told."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest
from peer_connections import MEMBERS, hello, pair, shake

from dledger.errors import HandshakeRefusedError, RemoteProtocolError
from dledger.rpc.codec import FRAME_PREFIX
from dledger.rpc.handshake import HANDSHAKE_FRAME_SIZE_MAX, Handshake, Hello

PAIRS = tuple((member, member.encode().ljust(16, b"!")) for member in sorted(MEMBERS))


def test_each_side_learns_what_the_other_proved() -> None:
    own = hello("n0", "n1", group_uuid=b"g" * 32, pairs=PAIRS, membership_index=4)
    dialler, acceptor = pair(own, hello("n1", group_uuid=b"g" * 32, pairs=PAIRS))
    shake(dialler, acceptor)
    assert acceptor.peer == own
    assert dialler.peer == hello("n1", "n0", group_uuid=b"g" * 32, pairs=PAIRS)


def test_a_formed_and_an_unformed_member_may_speak() -> None:
    dialler, acceptor = pair(hello("n0", "n1", group_uuid=b"g" * 32, pairs=PAIRS), hello("n1"))
    shake(dialler, acceptor)
    assert acceptor.peer is not None
    assert acceptor.peer.pairs == PAIRS


def test_a_reader_without_a_member_id_is_let_in_with_the_secret() -> None:
    reader = hello("", "n1", disk_uuid=None, data_file_size=0)
    dialler, acceptor = pair(reader)
    shake(dialler, acceptor)
    assert acceptor.established
    assert dialler.peer is not None
    assert dialler.peer.member_id == "n1"


@pytest.mark.parametrize(
    ("dialler_max", "acceptor_max", "spoken"), [(1, 1, 1), (1, 2, 1), (2, 1, 1), (3, 3, 3), (3, 2, 2)]
)
def test_both_sides_speak_the_highest_wire_version_they_have_in_common(
    dialler_max: int, acceptor_max: int, spoken: int
) -> None:
    dialler, acceptor = pair(
        hello("n0", "n1", wire_version_max=dialler_max), hello("n1", wire_version_max=acceptor_max)
    )
    shake(dialler, acceptor)
    assert (dialler.wire_version, acceptor.wire_version) == (spoken, spoken)


def test_a_member_of_version_1_is_understood_and_understands_a_later_one() -> None:
    """Its Hello ends with begin_pos, and it passes over what comes behind that in ours."""
    ours = msgspec.msgpack.decode(msgspec.msgpack.encode(hello("n0", "n1", wire_version_max=7)))
    former = ours[: 1 + Hello.__struct_fields__.index("wire_version_max")]
    read = msgspec.msgpack.decode(msgspec.msgpack.encode(former), type=Hello)
    assert (read.wire_version, read.wire_version_max, read.peers, read.features) == (1, 1, (), ())
    assert ours[2] == 1, "what version 1 demands to be its own"


@pytest.mark.parametrize("member_id", ["n0", ""])
def test_another_secret_is_refused_by_the_first_to_see_the_proof(member_id: str) -> None:
    dialler, acceptor = pair(hello(member_id, "n1"), secrets=((b"one",), (b"other",)))
    with pytest.raises(HandshakeRefusedError, match="pyDLedgerClusterSecret"):
        shake(dialler, acceptor)
    assert not dialler.established
    assert not acceptor.established


@pytest.mark.parametrize(
    ("dialler_has", "acceptor_has", "reason"),
    [
        (
            {"wire_version": 4, "wire_version_max": 5},
            {"wire_version_max": 3},
            "'n0' speaks the wire versions 4 to 5",
        ),
        (
            {"wire_version_max": 1},
            {"wire_version": 2, "wire_version_max": 3},
            "upgrade by way of a release between",
        ),
        ({"group": "broker-b"}, {}, "group 'broker-b'"),
        ({"member_id": "n1"}, {}, "both sides call themselves 'n1'"),
        ({"member_id": "n7"}, {}, "'n7' is not among the members n0, n1, n2"),
        ({"addressee_id": "n2"}, {}, "dialled 'n2', this is 'n1'"),
        ({"data_file_size": 4096}, {}, "data files of 4096 bytes at 'n0'"),
        ({"group_uuid": b"g" * 32}, {"group_uuid": b"h" * 32}, "another group"),
    ],
)
def test_a_mismatch_is_refused_with_its_reason_and_the_other_side_hears_it(
    dialler_has: dict[str, Any], acceptor_has: dict[str, Any], reason: str
) -> None:
    dialler_hello = hello(
        dialler_has.pop("member_id", "n0"), dialler_has.pop("addressee_id", "n1"), **dialler_has
    )
    dialler, acceptor = pair(dialler_hello, hello("n1", **acceptor_has))
    with pytest.raises(HandshakeRefusedError, match=reason) as refused:
        acceptor.receive_data(dialler.data_to_send())
    with pytest.raises(HandshakeRefusedError) as heard:
        dialler.receive_data(acceptor.data_to_send())
    assert heard.value.by_peer
    assert heard.value.reason == refused.value.reason
    assert dialler.data_to_send() == b""


def test_a_wrong_member_at_the_dialled_address_is_noticed_by_the_dialler() -> None:
    dialler, acceptor = pair(hello("n0", "n1"), hello("n1"))
    impostor = Handshake(hello("n2", "n0"), secrets=(b"s",), members=MEMBERS, dialling=True)
    frame = impostor.start()[0]
    dialler.data_to_send()
    with pytest.raises(HandshakeRefusedError, match="'n1' was dialled, 'n2' answered"):
        dialler.receive_data(FRAME_PREFIX.pack(2 + len(frame), len(frame)) + frame)
    assert not acceptor.established


def test_a_recorded_exchange_cannot_be_replayed_to_an_acceptor_with_a_fresh_nonce() -> None:
    dialler, acceptor = pair()
    first = dialler.data_to_send()
    acceptor.receive_data(first)
    dialler.receive_data(acceptor.data_to_send())
    second = dialler.data_to_send()
    _, fresh = pair(acceptor=hello("n1", nonce=b"another" + b"." * 25))
    fresh.receive_data(first)
    with pytest.raises(HandshakeRefusedError, match="secrets differ"):
        fresh.receive_data(second)


def test_an_acceptors_own_proof_sent_back_to_it_proves_nothing() -> None:
    dialler, acceptor = pair()
    acceptor.receive_data(dialler.data_to_send())
    answer = acceptor.data_to_send()
    hello_size = 4 + FRAME_PREFIX.unpack_from(answer)[0]
    with pytest.raises(HandshakeRefusedError, match="secrets differ"):
        acceptor.receive_data(answer[hello_size:])


def test_nothing_but_a_handshake_is_read_before_it_is_over() -> None:
    _, acceptor = pair()
    with pytest.raises(RemoteProtocolError, match="no peer handshake"):
        acceptor.receive_data(FRAME_PREFIX.pack(4, 2) + b"\x91\x09")


def test_a_stranger_cannot_make_us_hold_a_large_frame() -> None:
    _, acceptor = pair(frame_size_max=1 << 30)
    with pytest.raises(RemoteProtocolError, match=f"limit {HANDSHAKE_FRAME_SIZE_MAX}"):
        acceptor.receive_data(FRAME_PREFIX.pack(HANDSHAKE_FRAME_SIZE_MAX + 1, 2))


def test_messages_right_behind_the_last_handshake_frame_are_read() -> None:
    from dledger.rpc.codec import encode_message
    from dledger.rpc.requests import MetadataRequest

    dialler, acceptor = pair()
    acceptor.receive_data(dialler.data_to_send())
    dialler.receive_data(acceptor.data_to_send())
    acceptor.receive_data(dialler.data_to_send())
    welcome = acceptor.data_to_send()
    request = b"".join(encode_message(MetadataRequest(3)))
    assert dialler.receive_data(welcome + request) == [(MetadataRequest(3), b"")]


def test_a_member_that_this_one_has_not_heard_of_is_taken_if_it_is_of_the_same_formation() -> None:
    group = {"group_uuid": b"g" * 32, "pairs": PAIRS}
    dialler, acceptor = pair(hello("n9", "n1", **group), hello("n1", **group))
    shake(dialler, acceptor)
    assert acceptor.established


OLD, NEW = b"old", b"new"
CHANGES = [(OLD,), (OLD, NEW), (NEW, OLD), (NEW,)]


@pytest.mark.parametrize(("before", "after"), list(pairwise(CHANGES)))
@pytest.mark.parametrize("is_dialler_first", [True, False])
def test_members_of_two_steps_of_a_change_of_secrets_believe_each_other(
    before: tuple[bytes, ...], after: tuple[bytes, ...], is_dialler_first: bool
) -> None:
    dialler, acceptor = pair(secrets=(after, before) if is_dialler_first else (before, after))
    shake(dialler, acceptor)
    assert dialler.established
    assert acceptor.established


@pytest.mark.parametrize("known", [(NEW,), (NEW, b"another")])
def test_a_secret_that_is_no_longer_accepted_is_refused(known: tuple[bytes, ...]) -> None:
    for secrets in (((OLD,), known), (known, (OLD,))):
        dialler, acceptor = pair(secrets=secrets)
        with pytest.raises(HandshakeRefusedError, match="secrets differ"):
            shake(dialler, acceptor)
