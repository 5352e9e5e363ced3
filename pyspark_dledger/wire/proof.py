"""That a log is still the one that was read: an entry of it, by index, term and chain. Pure.

A chain value names all entries up to its own. So an offset whose entry has another chain today belongs to another log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pyspark_dledger.wire.read_errors import LogRewrittenError


class OffsetError(ValueError):
    """A checkpoint holds what is no offset of this source."""


@dataclass(frozen=True, slots=True)
class Proof:
    """An entry that is committed. Before the first one ever: index -1, chain 0."""

    group_uuid: str
    index: int
    term: int  # -1: of an entry that is not there any more, and whose chain alone is known
    chain: int

    def __str__(self) -> str:
        return (
            f"entry {self.index} of term {self.term} with chain {self.chain} in group {self.group_uuid[:16]}"
        )


def proofs_to_json(proofs: Mapping[str, Proof]) -> dict[str, dict[str, Any]]:
    """By broker name."""
    return {
        broker: {"group": proof.group_uuid, "index": proof.index, "term": proof.term, "chain": proof.chain}
        for broker, proof in sorted(proofs.items())
    }


def proofs_from_json(value: Any) -> dict[str, Proof]:
    """Raises OffsetError."""
    try:
        return {
            broker: Proof(str(told["group"]), int(told["index"]), int(told["term"]), int(told["chain"]))
            for broker, told in value.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        raise OffsetError(f"offset of a checkpoint: {value!r} names no entries") from None


class LogBounds(NamedTuple):
    """What the leader of a group has, and knows to be committed."""

    group_uuid: str
    begin_index: int  # of the first entry that is there
    committed_index: int


ProofAt = Callable[[str, int], Proof | None]
"""(broker name, index) -> a committed entry as it is now, None where it has expired."""


def check_proof(broker: str, proof: Proof, bounds: LogBounds, proof_at: ProofAt) -> None:
    """Raises LogRewrittenError where the entry is another one now. Nothing is said of an entry that has expired, or of
    which a new leader does not know yet that it is committed.
    """
    if proof.group_uuid != bounds.group_uuid:
        raise LogRewrittenError(
            f"the log of {broker}: the query has read group {proof.group_uuid[:16]}, and this is "
            f"{bounds.group_uuid[:16]}: begin a new query with a new checkpoint"
        )
    if bounds.committed_index < proof.index:
        return
    found = proof_at(broker, proof.index)
    if found is None:
        return
    if found.chain != proof.chain or (-1 not in (found.term, proof.term) and found.term != proof.term):
        raise LogRewrittenError(
            f"the log of {broker}: the query has read {proof}, and it is {found} now: the log was rewritten"
        )
