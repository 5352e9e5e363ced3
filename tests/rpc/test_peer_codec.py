"""Every peer message as bytes and back: one table, fed whole, byte by byte and with a tail."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from peer_connections import connected_pair, pair

from dledger.core.messages import (
    EntryRange,
    HeartBeatRequest,
    HeartBeatResponse,
    LedgerBegin,
    MembershipBefore,
    PushRequest,
    PushResponse,
    PushResult,
    PushType,
    ReadIndexRequest,
    ReadIndexResponse,
    TimeoutNow,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from dledger.core.refusal import RefusalReason
from dledger.entry import Index, Pos, Term
from dledger.errors import LocalProtocolError, RemoteProtocolError
from dledger.rpc.codec import FRAME_PREFIX, PeerMessage, decode_message, encode_message
from dledger.rpc.requests import (
    GetRequest,
    GetResponse,
    MetadataRequest,
    MetadataResponse,
    RepairRequest,
    RepairResponse,
)
from dledger.rpc.response_code import ResponseCode

APPEND = PushRequest(
    push_type=PushType.APPEND,
    term=Term(7),
    leader_id="n0",
    previous_index=Index(41),
    previous_term=Term(6),
    previous_chain=-2,
    committed_index=Index(40),
    sequence=9,
    entries=EntryRange(Index(42), Index(44), Pos(4096), 12, Term(7), 99),
)
CASES: list[tuple[PeerMessage, bytes]] = [
    (VoteRequest(Term(3), "n2", Term(2), Index(120), pre_vote=True), b""),
    (VoteRequest(Term(3), "n2", Term(-1), Index(-1), pre_vote=False), b""),
    (
        VoteResponse(
            Term(3),
            Term(4),
            "n1",
            True,
            VoteResult.REJECT_ALREADY_HAS_LEADER,
            Term(2),
            Index(7),
            doubted=True,
        ),
        b"",
    ),
    (HeartBeatRequest(Term(3), "n0", Index(-1), 0), b""),
    (HeartBeatResponse(Term(3), "n1", 12, Index(8)), b""),
    (APPEND, b"twelve bytes"),
    (PushRequest(PushType.COMPARE, Term(7), "n0", Index(-1), Term(-1), 0, Index(-1), 0), b""),
    (
        PushRequest(
            PushType.TRUNCATE,
            Term(7),
            "n0",
            Index(5),
            Term(1),
            3,
            Index(2),
            8,
            next_term=Term(7),
            next_chain=-1,
        ),
        b"",
    ),
    (
        PushRequest(
            PushType.INSTALL_BEGIN,
            Term(7),
            "n0",
            Index(5),
            Term(1),
            3,
            Index(9),
            8,
            begin_pos=Pos(1 << 40),
            begin_membership=MembershipBefore(Index(4), b"n0 n1"),
        ),
        b"",
    ),
    (PushRequest(PushType.COMMIT, Term(7), "n0", Index(5), Term(1), 3, Index(5), 8), b""),
    (
        PushResponse(PushType.APPEND, Term(7), "n1", 9, PushResult.SUCCESS, Index(41), Index(0), Index(44)),
        b"",
    ),
    (
        PushResponse(
            PushType.COMPARE,
            Term(7),
            "n1",
            9,
            PushResult.INCONSISTENT_STATE,
            Index(-1),
            Index(0),
            Index(20),
            Term(2),
            Index(11),
        ),
        b"",
    ),
    (GetRequest(1, Index(0), 1 << 20), b""),
    (GetResponse(1, ResponseCode.SUCCESS, Index(0), Index(1), Pos(0), 0, Index(5)), b"entries"),
    (GetResponse(2, ResponseCode.INDEX_OUT_OF_RANGE, Index(9), Index(8), Pos(0), 0, Index(5)), b""),
    (MetadataRequest(5), b""),
    (
        MetadataResponse(
            5,
            ResponseCode.SUCCESS,
            "broker-a",
            "n0",
            None,
            Term(1),
            Index(0),
            Index(-1),
            Index(-1),
            {"n0": "127.0.0.1:1"},
        ),
        b"",
    ),
    (HeartBeatRequest(Term(3), "n0", Index(-1), 0, asks_for_space=True), b""),
    (HeartBeatResponse(Term(3), "n1", 12, Index(8), is_disk_fit=False), b""),
    (VoteRequest(Term(3), "n2", Term(2), Index(120), pre_vote=False, leadership_transfer=True), b""),
    (TimeoutNow(Term(3), "n0", Index(120)), b""),
    (ReadIndexRequest(Term(3), "n1", (1 << 62) - 1), b""),
    (ReadIndexResponse(Term(3), "n0", 7, Index(120)), b""),
    (ReadIndexResponse(Term(3), "n0", 7, refusal=RefusalReason.LEADER_NOT_READY), b""),
    (RepairRequest(5, "n0", Index(7), Index(9), 1 << 20), b""),
    (RepairResponse(5, "n1", ResponseCode.SUCCESS, Index(7), Index(9), Pos(480)), b"entries"),
    (RepairResponse(6, "n1", ResponseCode.DISK_ERROR, Index(7), Index(6), Pos(0)), b""),
    (
        RepairResponse(
            6,
            "n1",
            ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN,
            Index(7),
            Index(6),
            Pos(0),
            LedgerBegin(Index(99), Term(3), -5, Pos(4096)),
        ),
        b"",
    ),
    (
        RepairResponse(
            6,
            "n1",
            ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN,
            Index(7),
            Index(6),
            Pos(0),
            LedgerBegin(Index(99), Term(3), -5, Pos(4096), MembershipBefore(Index(4), b"n0 n1")),
        ),
        b"",
    ),
]
WIRE = [b"".join(encode_message(message, [payload] if payload else [])) for message, payload in CASES]


@pytest.mark.parametrize(("message", "payload"), CASES, ids=lambda value: type(value).__name__)
def test_a_message_comes_back_as_it_was(message: PeerMessage, payload: bytes) -> None:
    frame = b"".join(encode_message(message, [payload[:3], payload[3:]]))
    size, header_size = FRAME_PREFIX.unpack_from(frame)
    assert size == len(frame) - 4
    assert decode_message(frame[6 : 6 + header_size], len(payload)) == message


def test_frames_fed_whole_give_every_message() -> None:
    _, acceptor = connected_pair()
    assert acceptor.receive_data(b"".join(WIRE)) == CASES


def test_frames_fed_byte_by_byte_give_every_message() -> None:
    _, acceptor = connected_pair()
    messages = []
    for byte in b"".join(WIRE):
        messages += acceptor.receive_data(bytes([byte]))
    assert messages == CASES


@pytest.mark.parametrize("tail", [1, 5, 6, 20])
def test_the_tail_of_a_read_waits_for_its_rest(tail: int) -> None:
    _, acceptor = connected_pair()
    for frame, case in zip(WIRE, CASES, strict=True):
        if tail >= len(frame):
            continue
        assert acceptor.receive_data(frame + WIRE[5][:tail]) == [case]
        assert acceptor.receive_data(WIRE[5][tail:]) == [CASES[5]]


@given(st.lists(st.sampled_from(range(len(WIRE))), max_size=6), st.data())
def test_any_cut_of_the_bytes_gives_the_same_messages(chosen: list[int], data: st.DataObject) -> None:
    stream = b"".join(WIRE[number] for number in chosen)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    _, acceptor = connected_pair()
    messages = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        messages += acceptor.receive_data(stream[start:end])
    assert messages == [CASES[number] for number in chosen]


index = st.integers(-1, 2**63 - 1).map(Index)
term = st.integers(-1, 2**63 - 1).map(Term)
crc = st.integers(-(2**31), 2**31 - 1)
member = st.text(min_size=1, max_size=64)
MESSAGES: st.SearchStrategy[PeerMessage] = st.one_of(
    st.builds(VoteRequest, term, member, term, index, st.booleans()),
    st.builds(
        VoteResponse,
        term,
        term,
        member,
        st.booleans(),
        st.sampled_from(VoteResult),
        term,
        index,
        st.booleans(),
    ),
    st.builds(HeartBeatRequest, term, member, index, st.integers(0, 2**63 - 1)),
    st.builds(
        PushRequest,
        st.sampled_from(PushType),
        term,
        member,
        index,
        term,
        crc,
        index,
        st.integers(0, 2**63 - 1),
        st.none(),
        st.none(),
        st.none() | term,
        st.none() | crc,
    ).map(
        lambda push: (
            replace(push, begin_pos=Pos(push.sequence)) if push.push_type is PushType.INSTALL_BEGIN else push
        )
    ),
    st.builds(
        PushResponse,
        st.sampled_from(PushType),
        term,
        member,
        st.integers(0, 2**63 - 1),
        st.sampled_from(PushResult),
        index,
        index,
        index,
        term,
        index,
    ),
)


@given(MESSAGES)
def test_any_values_in_range_survive_the_wire(message: PeerMessage) -> None:
    _, acceptor = connected_pair()
    assert acceptor.receive_data(b"".join(encode_message(message))) == [(message, b"")]


@given(MESSAGES, MESSAGES)
def test_unequal_values_have_unequal_bytes(one: PeerMessage, other: PeerMessage) -> None:
    assert (one == other) == (encode_message(one) == encode_message(other))


SIGN_FLIP = (
    0x1C  # of msgpack's uint formats, 0xcc to 0xcf, makes the int formats of the same sizes, 0xd0 to 0xd3
)


@given(st.sampled_from(WIRE), st.integers(0), st.integers(1, 255))
def test_a_damaged_frame_is_an_error_of_the_peer_or_another_message(frame: bytes, at: int, flip: int) -> None:
    """Or the same, where a number is in another format."""
    damaged = bytearray(frame)
    damaged[at % len(frame)] ^= flip
    _, acceptor = connected_pair()
    try:
        messages = acceptor.receive_data(bytes(damaged))
    except RemoteProtocolError:
        return
    for message, payload in messages:
        again = b"".join(encode_message(message, [payload] if payload else []))
        assert again != frame or (flip == SIGN_FLIP and 0xCC <= frame[at % len(frame)] <= 0xCF)


def test_a_frame_above_the_limit_is_refused_from_its_first_bytes() -> None:
    _, acceptor = connected_pair(frame_size_max=1000)
    with pytest.raises(RemoteProtocolError, match="limit 1000"):
        acceptor.receive_data(FRAME_PREFIX.pack(1001, 10))


def test_a_peer_that_dials_with_tls_is_told_apart_from_a_wrong_frame() -> None:
    _, acceptor = pair()
    with pytest.raises(RemoteProtocolError, match="pyDLedgerPeerTls"):
        acceptor.receive_data(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc")


def test_a_header_larger_than_its_frame_is_refused() -> None:
    _, acceptor = connected_pair()
    with pytest.raises(RemoteProtocolError, match="header of 9"):
        acceptor.receive_data(FRAME_PREFIX.pack(10, 9))


@pytest.mark.parametrize(
    "header",
    [
        b"\x91\x01",  # a vote request without fields
        b"\x92\x63\x01",  # an unknown type
        b"\xc0",
        b"\x96\x01\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa2n0\x00\x00\xc2",  # a term of 2**64 - 1
        b"\xdd\xff\xff\xff\xff",  # an array that claims four billion fields
    ],
)
def test_a_header_that_is_no_message_is_refused(header: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="bad header"):
        decode_message(header, 0)


@pytest.mark.parametrize(
    ("message", "payload"), CASES[:2] + CASES[6:9], ids=lambda value: type(value).__name__
)
def test_bytes_behind_a_message_that_has_none_are_refused(message: PeerMessage, payload: bytes) -> None:
    frame = b"".join(encode_message(message))
    with pytest.raises(RemoteProtocolError, match="1 bytes behind"):
        decode_message(frame[6:], 1)


def test_an_append_is_sent_only_with_the_bytes_it_announces() -> None:
    with pytest.raises(LocalProtocolError, match="11 bytes"):
        encode_message(APPEND, [b"eleven byte"])


@pytest.mark.parametrize(
    ("push_type", "begin_pos"), [(PushType.INSTALL_BEGIN, None), (PushType.COMMIT, Pos(0))]
)
def test_rejects_a_begin_without_its_position_and_a_position_without_a_begin(push_type, begin_pos):
    message = PushRequest(push_type, Term(7), "n0", Index(5), Term(1), 3, Index(5), 8, begin_pos=begin_pos)
    (frame,) = encode_message(message)
    with pytest.raises(RemoteProtocolError, match="begin_pos"):
        decode_message(frame[FRAME_PREFIX.size :], 0)


def test_a_push_of_a_member_that_does_not_know_begins_is_read():
    message = PushRequest(PushType.COMMIT, Term(7), "n0", Index(5), Term(1), 3, Index(5), 8)
    (frame,) = encode_message(message)
    values = msgspec.msgpack.decode(frame[FRAME_PREFIX.size :])
    assert decode_message(msgspec.msgpack.encode(values[:-3]), 0) == message


def test_a_vote_request_of_a_member_that_does_not_know_transfers_is_read():
    message = VoteRequest(Term(3), "n2", Term(2), Index(120), pre_vote=False)
    (frame,) = encode_message(message)
    values = msgspec.msgpack.decode(frame[FRAME_PREFIX.size :])
    assert decode_message(msgspec.msgpack.encode(values[:-1]), 0) == message


@pytest.mark.parametrize(("index", "body"), [(4, None), (None, b"n0")])
def test_members_at_a_begin_are_whole(index: int | None, body: bytes | None) -> None:
    message = PushRequest(
        PushType.INSTALL_BEGIN, Term(7), "n0", Index(5), Term(1), 3, Index(5), 8, begin_pos=Pos(0)
    )
    (frame,) = encode_message(message)
    values = msgspec.msgpack.decode(frame[FRAME_PREFIX.size :])
    with pytest.raises(RemoteProtocolError, match=r"membership|members"):
        decode_message(msgspec.msgpack.encode([*values[:-2], index, body]), 0)


def test_a_repair_of_a_member_that_does_not_say_where_its_log_begins_is_read():
    message = RepairResponse(6, "n1", ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN, Index(7), Index(6), Pos(0))
    (frame,) = encode_message(message)
    values = msgspec.msgpack.decode(frame[FRAME_PREFIX.size :])
    assert decode_message(msgspec.msgpack.encode(values[:-6]), 0) == message


@pytest.mark.parametrize("field", range(7, 13))
def test_part_of_where_a_log_begins_is_refused(field):
    """Fields behind the tag and the six of a response without a begin."""
    begin = LedgerBegin(Index(99), Term(3), -5, Pos(4096), MembershipBefore(Index(4), b"n0 n1"))
    message = RepairResponse(
        6, "n1", ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN, Index(7), Index(6), Pos(0), begin
    )
    (frame,) = encode_message(message)
    values = msgspec.msgpack.decode(frame[FRAME_PREFIX.size :])
    values[field] = None
    with pytest.raises(RemoteProtocolError, match=r"part of where|half of a"):
        decode_message(msgspec.msgpack.encode(values), 0)
