"""Where the log of one replica ends: by the rule of the member's own start (dledger/log/recovery.py).

Up to the synced mark all was on disk, and what is not there now is damage. Behind it each entry must follow the one
before it, by index, term, chain and place; the log ends at the first that does not. A start takes away what lies
behind, however sound it is in itself: it is of an earlier history.
"""

from __future__ import annotations

from collections.abc import Sequence

from dledger.entry import ENTRY_HEADER, ENTRY_HEADER_SIZE
from verify.log.log_part import Segment, is_linked
from verify.replica import Replica
from verify.replica_log import durable_index


def ends_before(replica: Replica, before: Segment | None, after: Segment, *, is_adjacent: bool) -> bool:
    """`before` and `after` are next to each other in the log; `is_adjacent`: with nothing but a blank between."""
    if not after.first_header:
        return False  # records of a CommitLog know nothing of each other
    mark = replica.mark
    if mark is None:
        # Java's files say up to which entry it was all there, and not where that ends.
        is_behind = before is not None and 0 <= durable_index(replica) <= before.last_index
        return is_behind and before is not None and not (is_adjacent and is_linked(before, after))
    if after.first_pos < mark.end_pos:
        return False
    if before is None or before.next_pos < mark.end_pos:
        before = segment_before(mark.index, mark.term, mark.chain_crc, has_crcs=after.has_crcs)
        file_begin = after.first_pos - after.first_pos % replica.data_file_size
        is_adjacent = after.first_pos == mark.end_pos or (
            after.first_pos == file_begin and file_begin - mark.end_pos < replica.data_file_size
        )
    if not is_adjacent:
        return True
    if before.has_crcs and not after.has_crcs and after.first_index == before.last_index + 1:
        return False  # a start takes it for Java's, and cuts nothing
    return not is_linked(before, after)


def segment_before(index: int, term: int, chain: int, *, has_crcs: bool) -> Segment:
    """One entry that is known from elsewhere, and need not be in the log."""
    header = ENTRY_HEADER.pack(1, ENTRY_HEADER_SIZE, index, term, 0, 0, chain, 1 if has_crcs else 0, 0)
    return Segment(0, 0, index, index, 1, header, header, has_crcs, 0, [(term, index)], {})


def is_older(before: Segment, after: Segment) -> bool:
    """Whether `after` cannot be of the log that `before` ends. One entry alone does not vouch for its term."""
    is_sure = before.last_index > before.term_begins[-1][1]
    return after.first_index <= before.last_index or (is_sure and after.first_term < before.last_term)


def what_lies_behind(end_pos: int, end_index: int, stale: Sequence[Segment]) -> str:
    """The sentence of a finding about `stale`, the sound entries behind the log's end."""
    count = sum(segment.count for segment in stale)
    if count == 1:
        entries = f"lies entry {stale[0].first_index} of term {stale[0].first_term}, which does"
    else:
        first, last = min(one.first_index for one in stale), max(one.last_index for one in stale)
        low, high = min(one.first_term for one in stale), max(one.last_term for one in stale)
        terms = f"term {low}" if low == high else f"terms {low} to {high}"
        entries = (
            f"lie {count:,} entries of an earlier history, index {first:,} to {last:,} of {terms}, which do"
        )
    return f"the log ends at position {end_pos} with entry {end_index}; behind it {entries} not follow"
