"""What a member tells readers that are no members: committed entries as they lie in its log, and where it stands."""

from collections.abc import Mapping

from msgspec.structs import replace

from dledger.config import Address, DLedgerConfig
from dledger.core.member import Member
from dledger.core.messages import PeerId
from dledger.entry import Index, Pos
from dledger.errors import FaultyEntryError
from dledger.log.log_store import LogStore
from dledger.rpc.requests import GetRequest, GetResponse, MetadataRequest, MetadataResponse
from dledger.rpc.response_code import ResponseCode


def answer_get(
    log: LogStore, committed_index: Index, request: GetRequest, size_max: int
) -> tuple[GetResponse, list[bytes]]:
    """At least one entry if there is one, else not more than about `size_max` bytes. Raises DiskError."""
    begin = request.begin_index
    last, pos, chain = Index(begin - 1), Pos(0), 0
    buffers: list[bytes] = []
    code = ResponseCode.SUCCESS
    if begin < log.ledger_begin_index:
        code = ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
    elif begin > committed_index + 1:
        code = ResponseCode.INDEX_OUT_OF_RANGE
    elif begin <= committed_index:
        try:
            entries = log.range_from(begin, min(request.size_max, size_max))
            assert entries is not None, "committed entries are in the log"
            if entries.last_index > committed_index:
                end_pos = log.pos_at(Index(committed_index + 1))
                entries = replace(entries, last_index=committed_index, size=end_pos - entries.pos)
            chain = log.chain_at(Index(begin - 1)) or 0
            buffers = log.read_range(entries)
            last, pos = entries.last_index, entries.pos
        except FaultyEntryError:
            code = ResponseCode.DISK_ERROR
    return GetResponse(request.request_id, code, begin, last, pos, chain, committed_index), buffers


def answer_metadata(
    config: DLedgerConfig,
    log: LogStore,
    member: Member,
    addresses: Mapping[PeerId, Address],
    request: MetadataRequest,
) -> MetadataResponse:
    return MetadataResponse(
        request_id=request.request_id,
        code=ResponseCode.SUCCESS,
        group=config.group,
        member_id=config.self_id,
        leader_id=member.leader_id,
        term=member.curr_term,
        ledger_begin_index=log.ledger_begin_index,
        ledger_end_index=log.ledger_end_index,
        committed_index=member.committed_index,
        peers={peer: str(address) for peer, address in addresses.items()},
    )
