"""The log of one group of a cluster that runs, over the wire: from followers first, for leaders have enough to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from export.export_directory import ExportError
from pyspark_dledger.schema import WIRE_ENTRY_COLUMN_NAMES
from pyspark_dledger.wire.cluster_look import ClusterLook
from pyspark_dledger.wire.entry_offset import LogRange
from pyspark_dledger.wire.entry_options import LogOptions, entry_options
from pyspark_dledger.wire.log_reader import LogReader, LogTask
from pyspark_dledger.wire.proof import Proof
from verify.log.entry_scan import Run
from verify.log.log_walk import LogPlace

_UUID_SHOWN: Final = 16  # hex digits, as files tell it
_PATIENCE_MS: Final = 30_000  # an election, or a broker that starts


class WireSource:
    """What was committed when it was made."""

    def __init__(self, look: ClusterLook, options: LogOptions, broker: str) -> None:
        """Raises MQClientError, ReadError."""
        bounds = look.committed(broker)
        self.group = bounds.group_uuid[:_UUID_SHOWN]
        self.committed_index = bounds.committed_index
        self._look = look
        self._options = options
        self._broker = broker
        self._group_uuid = bounds.group_uuid
        self._begin_index = bounds.begin_index

    def begin(self) -> LogPlace | None:
        """Raises MQClientError, ReadError."""
        if self.committed_index < self._begin_index:
            return None
        proof = self._look.proof_at(self._broker, self._begin_index - 1)
        if proof is None:
            raise ExportError(f"entry {self._begin_index:,} has just expired from the log: begin again")
        # Where it lies only the entry itself says.
        first = next(self._runs(proof, self._begin_index + 1))
        return LogPlace(proof.index, proof.term, proof.chain, first.first_pos)

    def runs(self, place: LogPlace) -> Iterator[Run]:
        """Raises MQClientError, ReadError."""
        if place.chain is None:
            raise ExportError(
                "this export was made of Java's files, whose entries have no chain to go on from"
            )
        proof = Proof(self._group_uuid, place.index, place.term, place.chain)
        return self._runs(proof, self.committed_index + 1)

    def _runs(self, before: Proof, end: int) -> Iterator[Run]:
        task = LogTask(LogRange(self._broker, before.index + 1, end), self._group_uuid, before, None)
        with closing(LogReader(self._options, task)) as reader:
            yield from reader.runs()


@contextmanager
def wire_source(namesrv: str, broker: str) -> Iterator[WireSource]:
    """`namesrv`: host:port, several joined by ;. `broker`: "" where there is only one group. Raises ExportError,
    OptionError, MQClientError, ReadError."""
    given = {"namesrv": namesrv, "readFrom": "follower", "pollTimeoutMs": str(_PATIENCE_MS)}
    options = entry_options(given, WIRE_ENTRY_COLUMN_NAMES, is_stream=False).log
    with ClusterLook(options.cluster, options.timeout_ms) as look:
        groups = look.groups([broker] if broker else [])
        if len(groups) != 1:
            raise ExportError(
                f"there are {len(groups)} groups of brokers: name one with --broker, {', '.join(groups)}"
                if groups
                else f"no broker is registered at {namesrv}"
            )
        yield WireSource(look, options, groups[0])
