"""What a member gives to another one that has damage: entries as they lie here, proved as they are read."""

from msgspec.structs import replace

from dledger.core.messages import LedgerBegin, PeerId
from dledger.entry import Index, Pos
from dledger.errors import FaultyEntryError
from dledger.log.log_store import LogStore
from dledger.rpc.requests import RepairRequest, RepairResponse
from dledger.rpc.response_code import ResponseCode


def answer_repair(
    log: LogStore, self_id: PeerId, request: RepairRequest, size_max: int
) -> tuple[RepairResponse, list[bytes]]:
    """Whole entries from the first one asked for on, as far as this log goes, and not more than about `size_max` bytes.
    Raises DiskError.
    """
    first_index, last_index = request.first_index, min(request.last_index, log.ledger_end_index)

    def refusal(code: ResponseCode, begin: LedgerBegin | None = None) -> tuple[RepairResponse, list[bytes]]:
        none = Index(first_index - 1)
        return RepairResponse(request.request_id, self_id, code, first_index, none, Pos(0), begin), []

    if first_index < log.ledger_begin_index:
        return refusal(ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN, log.begin)
    if first_index > last_index:
        return refusal(ResponseCode.INDEX_OUT_OF_RANGE)
    try:
        entries = log.range_from(first_index, min(request.size_max, size_max))
        assert entries is not None, "the log holds them"
        if entries.last_index > last_index:
            size = log.end_pos_at(last_index) - entries.pos
            entries = replace(entries, last_index=last_index, size=size)
        buffers = log.read_range(entries)
    except FaultyEntryError:
        return refusal(ResponseCode.DISK_ERROR)
    response = RepairResponse(
        request.request_id, self_id, ResponseCode.SUCCESS, first_index, entries.last_index, entries.pos
    )
    return response, buffers
