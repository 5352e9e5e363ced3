"""Up to where a fault may damage a member: others hold it, and the member knows that it was durable."""

from collections.abc import Callable

from disk.slots import newest_payload
from dledger.log.synced_mark import MARK_FILE_NAME, SyncedMark, unpack_mark
from simulator.harness.oracle import Oracle
from simulator.world.sim_member import SimMember


def committed_mark(member: SimMember, oracle: Oracle, *, is_cached: bool = False) -> SyncedMark | None:
    """The synced mark on a member's medium, or in the page cache, if all that it covers has been committed."""
    read = member.disk.content if is_cached else member.disk.durable
    mark = read_mark(member, read)
    if mark is None:
        return None
    if mark.cut is not None or not mark.before_begin_index < mark.index <= oracle.end_index:
        return None
    # Where others are committed these will be cut.
    return mark if oracle.chains[mark.index] == mark.chain_crc else None


def read_mark(member: SimMember, read: Callable[[str], bytes | None]) -> SyncedMark | None:
    """`read` gives what a file holds, on the medium or in the page cache."""
    slots = read(f"{member.config.directory}/pydledger/{MARK_FILE_NAME}")
    payload = newest_payload(slots) if slots is not None else None
    return unpack_mark(payload) if payload is not None else None
