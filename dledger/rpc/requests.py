"""Requests that any holder of the cluster secret may send to a member, and their answers, as values.

GET and METADATA are DLedger's (50002, 50000). They read only: GET gives committed entries as the raw bytes
they are on disk, so that a reader verifies CRCs and chain itself. Unlike DLedger's GET it never shows what
is not committed.
"""

import msgspec

from dledger.core.messages import LedgerBegin, PeerId
from dledger.entry import Index, Pos, Term
from dledger.rpc.response_code import ResponseCode


class GetRequest(msgspec.Struct, frozen=True):
    request_id: int  # comes back in the answer
    begin_index: Index
    size_max: int  # bytes; at least one entry is sent


class GetResponse(msgspec.Struct, frozen=True):
    """With SUCCESS, whole entries follow as payload: first_index .. last_index, one data file's at most.

    A range that is empty because nothing more is committed has last_index = first_index - 1.
    INDEX_LESS_THAN_LOCAL_BEGIN and INDEX_OUT_OF_RANGE say that this member does not hold (or not know as
    committed) the entry asked for.
    """

    request_id: int
    code: ResponseCode
    first_index: Index
    last_index: Index
    first_pos: Pos
    previous_chain: int  # chain_crc of the entry before first_index: what verify_entries starts from
    committed_index: Index


class MetadataRequest(msgspec.Struct, frozen=True):
    request_id: int


class MetadataResponse(msgspec.Struct, frozen=True):
    request_id: int
    code: ResponseCode
    group: str
    member_id: PeerId
    leader_id: PeerId | None
    term: Term
    ledger_begin_index: Index
    ledger_end_index: Index
    committed_index: Index
    peers: dict[PeerId, str]  # id -> host:port of its Raft port


class RepairRequest(msgspec.Struct, frozen=True):
    """A member asks another one for entries that are damaged on its disk, committed or not."""

    request_id: int  # comes back in the answer
    member_id: PeerId  # who asks
    first_index: Index
    last_index: Index
    size_max: int  # bytes; at least one entry is sent


class RepairResponse(msgspec.Struct, frozen=True):
    """With SUCCESS, whole entries follow as payload: first_index .. last_index, one data file's at most, read back and
    proved by who sends them. DISK_ERROR: they are damaged there, too. INDEX_LESS_THAN_LOCAL_BEGIN and
    INDEX_OUT_OF_RANGE: that member does not hold them, any more or yet; with the first of the two comes its `begin`.
    """

    request_id: int
    member_id: PeerId  # who answers
    code: ResponseCode
    first_index: Index
    last_index: Index
    first_pos: Pos
    begin: LedgerBegin | None = None


Request = GetRequest | MetadataRequest
Response = GetResponse | MetadataResponse
RepairMessage = RepairRequest | RepairResponse
