"""Messages of the peer protocol as bytes: one frame each.

    uint32  size of all that follows
    uint16  size of the header
    header  msgpack array: message type, then the fields in the order of the classes below
    rest    raw entry bytes (APPEND and GET answers), as they lie in the log

The header is checked by msgspec while it decodes: types, ranges, text lengths. Whether the entry bytes are
sound is dledger.entry's business, and what a message means dledger.core's. Growing the protocol: new fields
go to the end of an array with a default; a member ignores fields it does not know.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from struct import Struct
from typing import Annotated, Any

import msgspec
from msgspec.structs import astuple

from dledger.core.membership import READ_INDEX_WIRE_VERSION
from dledger.core.messages import (
    EntryRange,
    HeartBeatRequest,
    HeartBeatResponse,
    LedgerBegin,
    MembershipBefore,
    Message,
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
from dledger.rpc.requests import (
    GetRequest,
    GetResponse,
    MetadataRequest,
    MetadataResponse,
    RepairMessage,
    RepairRequest,
    RepairResponse,
    Request,
    Response,
)
from dledger.rpc.response_code import ResponseCode

FRAME_PREFIX = Struct(">IH")  # size of all that follows the first field, size of the header
REPAIR_WIRE_VERSION = 2

_SIZE_FIELD = 4
_HEADER_SIZE_FIELD = 2
HEADER_SIZE_MAX = 0xFFFF

PeerMessage = Message | Request | Response | RepairMessage

# Ranges that the fields may have on the wire. -1 is "none" for an index and for a term.
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Int63 = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Term = Annotated[Term, msgspec.Meta(ge=-1, le=2**63 - 1)]
_Index = Annotated[Index, msgspec.Meta(ge=-1, le=2**63 - 1)]
_EntryIndex = Annotated[Index, msgspec.Meta(ge=0, le=2**63 - 1)]
_EntryTerm = Annotated[Term, msgspec.Meta(ge=0, le=2**63 - 1)]
_Pos = Annotated[Pos, msgspec.Meta(ge=0, le=2**63 - 1)]
_Crc = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
_Text = Annotated[str, msgspec.Meta(max_length=256)]


class _VoteRequest(msgspec.Struct, array_like=True, tag=1, gc=False):
    term: _Term
    candidate_id: _Id
    ledger_end_term: _Term
    ledger_end_index: _Index
    pre_vote: bool
    leadership_transfer: bool = False  # the field is newer than the rest of version 1


class _VoteResponse(msgspec.Struct, array_like=True, tag=2, gc=False):
    term: _Term
    request_term: _Term
    voter_id: _Id
    pre_vote: bool
    vote_result: VoteResult
    ledger_end_term: _Term
    ledger_end_index: _Index
    doubted: bool


class _HeartBeatRequest(msgspec.Struct, array_like=True, tag=3, gc=False):
    term: _Term
    leader_id: _Id
    committed_index: _Index
    round: _Int63
    asks_for_space: bool = False  # of a leader that does not know the field


class _HeartBeatResponse(msgspec.Struct, array_like=True, tag=4, gc=False):
    term: _Term
    member_id: _Id
    round: _Int63
    ledger_end_index: _Index
    is_disk_fit: bool = True  # what a member says that does not know the field


class _PushRequest(msgspec.Struct, array_like=True, tag=5, gc=False):
    """`entries_*` say what an APPEND carries: its first entry is previous_index + 1, its size that of the
    rest.
    """

    push_type: PushType
    term: _Term
    leader_id: _Id
    previous_index: _Index
    previous_term: _Term
    previous_chain: _Crc
    committed_index: _Index
    sequence: _Int63
    next_term: _Term | None
    next_chain: _Crc | None
    entries_pos: _Pos | None
    entries_last_index: _EntryIndex | None
    entries_last_term: _EntryTerm | None
    entries_last_chain: _Crc | None
    # These fields are newer than the rest of version 1.
    begin_pos: _Pos | None = None
    begin_membership_index: _EntryIndex | None = None
    begin_membership_body: Annotated[bytes, msgspec.Meta(max_length=0x8000)] | None = None


class _PushResponse(msgspec.Struct, array_like=True, tag=6, gc=False):
    push_type: PushType
    term: _Term
    member_id: _Id
    sequence: _Int63
    push_result: PushResult
    durable_index: _Index
    ledger_begin_index: _Index
    ledger_end_index: _Index
    conflict_term: _Term
    conflict_index: _Index


class _GetRequest(msgspec.Struct, array_like=True, tag=7, gc=False):
    request_id: _Int63
    begin_index: _EntryIndex
    size_max: _Int63


class _GetResponse(msgspec.Struct, array_like=True, tag=8, gc=False):
    request_id: _Int63
    code: ResponseCode
    first_index: _EntryIndex
    last_index: _Index
    first_pos: _Pos
    previous_chain: _Crc
    committed_index: _Index


class _MetadataRequest(msgspec.Struct, array_like=True, tag=9, gc=False):
    request_id: _Int63


class _MetadataResponse(msgspec.Struct, array_like=True, tag=10):
    request_id: _Int63
    code: ResponseCode
    group: _Text
    member_id: _Id
    leader_id: _Id | None
    term: _Term
    ledger_begin_index: _Index
    ledger_end_index: _Index
    committed_index: _Index
    peers: Annotated[dict[_Id, _Text], msgspec.Meta(max_length=64)]


class _TimeoutNow(msgspec.Struct, array_like=True, tag=11, gc=False):
    term: _Term
    leader_id: _Id
    ledger_end_index: _Index


class _RepairRequest(msgspec.Struct, array_like=True, tag=12, gc=False):
    request_id: _Int63
    member_id: _Id
    first_index: _EntryIndex
    last_index: _EntryIndex
    size_max: _Int63


class _RepairResponse(msgspec.Struct, array_like=True, tag=13, gc=False):
    request_id: _Int63
    member_id: _Id
    code: ResponseCode
    first_index: _EntryIndex
    last_index: _Index
    first_pos: _Pos
    # These fields are newer than the rest of version 2.
    before_begin_index: _EntryIndex | None = None
    before_begin_term: _EntryTerm | None = None
    before_begin_chain: _Crc | None = None
    begin_pos: _Pos | None = None
    begin_membership_index: _EntryIndex | None = None
    begin_membership_body: Annotated[bytes, msgspec.Meta(max_length=0x8000)] | None = None


class _ReadIndexRequest(msgspec.Struct, array_like=True, tag=14, gc=False):
    term: _Term
    member_id: _Id
    request_id: _Int63


class _ReadIndexResponse(msgspec.Struct, array_like=True, tag=15, gc=False):
    term: _Term
    member_id: _Id
    request_id: _Int63
    read_index: _Index
    refusal: RefusalReason | None


_Wire = (
    _VoteRequest
    | _VoteResponse
    | _HeartBeatRequest
    | _HeartBeatResponse
    | _PushRequest
    | _PushResponse
    | _GetRequest
    | _GetResponse
    | _MetadataRequest
    | _MetadataResponse
    | _TimeoutNow
    | _RepairRequest
    | _RepairResponse
    | _ReadIndexRequest
    | _ReadIndexResponse
)

# Messages whose wire class has the same fields in the same order.
_SAME_FIELDS: tuple[tuple[type[PeerMessage], type[msgspec.Struct]], ...] = (
    (VoteRequest, _VoteRequest),
    (VoteResponse, _VoteResponse),
    (HeartBeatRequest, _HeartBeatRequest),
    (HeartBeatResponse, _HeartBeatResponse),
    (PushResponse, _PushResponse),
    (GetRequest, _GetRequest),
    (GetResponse, _GetResponse),
    (MetadataRequest, _MetadataRequest),
    (MetadataResponse, _MetadataResponse),
    (TimeoutNow, _TimeoutNow),
    (RepairRequest, _RepairRequest),
    (ReadIndexRequest, _ReadIndexRequest),
    (ReadIndexResponse, _ReadIndexResponse),
)
_TO_WIRE: dict[type, tuple[type[msgspec.Struct], Callable[[Any], Any]]] = {
    message: (wire, attrgetter(*wire.__struct_fields__)) for message, wire in _SAME_FIELDS
}
_FROM_WIRE: dict[type, type[PeerMessage]] = {wire: message for message, wire in _SAME_FIELDS}

_encode_header = msgspec.msgpack.Encoder().encode
_decode_header = msgspec.msgpack.Decoder(_Wire).decode


# Of messages that came after version 1; a peer that does not speak it would close the connection.
_WIRE_VERSIONS: dict[type, int] = {
    TimeoutNow: 2,
    RepairRequest: REPAIR_WIRE_VERSION,
    RepairResponse: REPAIR_WIRE_VERSION,
    ReadIndexRequest: READ_INDEX_WIRE_VERSION,
    ReadIndexResponse: READ_INDEX_WIRE_VERSION,
}


def wire_version_of(message: PeerMessage) -> int:
    """The lowest wire version that has this message."""
    return _WIRE_VERSIONS.get(type(message), 1)


def encode_message(message: PeerMessage, buffers: Sequence[bytes] = ()) -> list[bytes]:
    """One frame as buffers to be written one after the other. `buffers` are its raw entry bytes, not copied.

    Raises LocalProtocolError when the bytes are not those that the message announces.
    """
    payload_size = 0
    for buffer in buffers:
        payload_size += len(buffer)
    if type(message) is PushRequest:
        if payload_size != (0 if message.entries is None else message.entries.size):
            raise LocalProtocolError(f"{payload_size} bytes of entries for {message.entries}")
        wire: msgspec.Struct = _push_to_wire(message)
    elif type(message) is RepairResponse:
        wire = _repaired_to_wire(message)
    else:
        wire_class, fields = _TO_WIRE[type(message)]
        values = fields(message)
        wire = wire_class(*values) if type(values) is tuple else wire_class(values)
    header = _encode_header(wire)
    if len(header) > HEADER_SIZE_MAX:
        raise LocalProtocolError(
            f"header of {len(header)} bytes, limit {HEADER_SIZE_MAX}: {type(message).__name__}"
        )
    prefix = FRAME_PREFIX.pack(_HEADER_SIZE_FIELD + len(header) + payload_size, len(header))
    return [prefix + header, *buffers]


def decode_message(header: bytes | memoryview, payload_size: int) -> PeerMessage:
    """The value of a header whose frame has `payload_size` bytes behind it.

    An APPEND's `entries` names what was sent; its `payload` is left None for whoever verifies the bytes.
    Raises RemoteProtocolError.
    """
    try:
        wire = _decode_header(header)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(f"bad header of a peer message: {error}") from error
    if type(wire) is _PushRequest:
        return _push_from_wire(wire, payload_size)
    if type(wire) is _RepairResponse:
        return _repaired_from_wire(wire)
    if payload_size and type(wire) is not _GetResponse:
        raise RemoteProtocolError(f"{payload_size} bytes behind a {type(wire).__name__[1:]}, which has none")
    return _FROM_WIRE[type(wire)](*astuple(wire))


def _push_to_wire(message: PushRequest) -> _PushRequest:
    entries, membership = message.entries, message.begin_membership
    if entries is None:
        pos = last_index = last_term = last_chain = None
    else:
        pos, last_index = entries.pos, entries.last_index
        last_term, last_chain = entries.last_term, entries.last_chain
    return _PushRequest(
        message.push_type,
        message.term,
        message.leader_id,
        message.previous_index,
        message.previous_term,
        message.previous_chain,
        message.committed_index,
        message.sequence,
        message.next_term,
        message.next_chain,
        pos,
        last_index,
        last_term,
        last_chain,
        message.begin_pos,
        None if membership is None else membership.index,
        None if membership is None else membership.body,
    )


def _push_from_wire(wire: _PushRequest, payload_size: int) -> PushRequest:
    entries: EntryRange | None = None
    pos, last_index = wire.entries_pos, wire.entries_last_index
    last_term, last_chain = wire.entries_last_term, wire.entries_last_chain
    if pos is not None and last_index is not None and last_term is not None and last_chain is not None:
        if wire.push_type is not PushType.APPEND or not payload_size or last_index <= wire.previous_index:
            raise RemoteProtocolError(
                f"{wire.push_type.name} of entries {wire.previous_index + 1}..{last_index} in {payload_size} bytes"
            )
        entries = EntryRange(
            first_index=Index(wire.previous_index + 1),
            last_index=last_index,
            pos=pos,
            size=payload_size,
            last_term=last_term,
            last_chain=last_chain,
        )
    elif payload_size or any(field is not None for field in (pos, last_index, last_term, last_chain)):
        raise RemoteProtocolError(
            f"{payload_size} bytes behind a {wire.push_type.name} without an entry range"
        )
    if (wire.begin_pos is not None) != (wire.push_type is PushType.INSTALL_BEGIN):
        raise RemoteProtocolError(f"{wire.push_type.name} with begin_pos {wire.begin_pos}")
    membership = _membership_from_wire(wire)
    if membership is not None and wire.begin_pos is None:
        raise RemoteProtocolError(f"{wire.push_type.name} with the members of entry {membership.index}")
    return PushRequest(
        wire.push_type,
        wire.term,
        wire.leader_id,
        wire.previous_index,
        wire.previous_term,
        wire.previous_chain,
        wire.committed_index,
        wire.sequence,
        entries,
        None,
        wire.next_term,
        wire.next_chain,
        wire.begin_pos,
        membership,
    )


def _repaired_to_wire(message: RepairResponse) -> _RepairResponse:
    begin = message.begin
    membership = None if begin is None else begin.membership
    return _RepairResponse(
        message.request_id,
        message.member_id,
        message.code,
        message.first_index,
        message.last_index,
        message.first_pos,
        None if begin is None else begin.before_index,
        None if begin is None else begin.before_term,
        None if begin is None else begin.before_chain,
        None if begin is None else begin.pos,
        None if membership is None else membership.index,
        None if membership is None else membership.body,
    )


def _repaired_from_wire(wire: _RepairResponse) -> RepairResponse:
    begin: LedgerBegin | None = None
    membership = _membership_from_wire(wire)
    index, term = wire.before_begin_index, wire.before_begin_term
    chain, pos = wire.before_begin_chain, wire.begin_pos
    if index is not None and term is not None and chain is not None and pos is not None:
        begin = LedgerBegin(index, term, chain, pos, membership)
    elif membership is not None or any(field is not None for field in (index, term, chain, pos)):
        raise RemoteProtocolError("RepairResponse with part of where a log begins")
    return RepairResponse(
        wire.request_id,
        wire.member_id,
        wire.code,
        wire.first_index,
        wire.last_index,
        wire.first_pos,
        begin,
    )


def _membership_from_wire(wire: _PushRequest | _RepairResponse) -> MembershipBefore | None:
    index, body = wire.begin_membership_index, wire.begin_membership_body
    if index is not None and body is not None:
        return MembershipBefore(index, body)
    if index is not None or body is not None:
        raise RemoteProtocolError(f"{type(wire).__name__[1:]} with half of a membership entry")
    return None
