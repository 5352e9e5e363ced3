"""Dispatches committed entries, in order and once: messages to their ConsumeQueues, state records to the tables.

Nothing behind `committed_index` is looked at, so whatever is derived from the log is derived from committed entries
alone. Where it stands (`applied_index`, `confirm_offset`) is what readers may see.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from dledger.entry import EntryKind, Index, Term
from dledger.errors import FaultyEntryError
from dledger.log.errors import LedgerError
from dledger.log.recent_batches import RecentBatch
from message.decoder import decode_message
from message.dispatch_columns import scan_records
from message.errors import MessageDecodeError
from store.dispatch_request import DispatchRequest, dispatch_requests
from store.dledger_commit_log import DLedgerCommitLog
from store.errors import StoreDamagedError
from store.queues.consume_queue_store import ConsumeQueueStore
from store.replicated_log import Ledger
from store.store_config import StoreConfig

log = logging.getLogger(__name__)


class AppliedEntries(Protocol):
    """What is to happen with entries other than messages, and when messages have arrived."""

    def arrived(self, requests: list[DispatchRequest]) -> None:
        """Once per step, with all that became visible in it."""
        ...

    def no_op_applied(self, term: Term, index: Index) -> None: ...

    def java_term_began(self, index: Index) -> None:
        """Before what follows from the entry. Each term of ours begins with a no-op; this one does not."""
        ...

    def state_applied(
        self, body: bytes, term: Term, index: Index, pos: int, store_timestamp: int
    ) -> None: ...


class Reput:
    """Invariant: the ConsumeQueues hold the units of exactly the entries up to applied_index, which is at most
    committed_index; confirm_offset is the position behind that entry.
    """

    def __init__(
        self,
        config: StoreConfig,
        ledger: Ledger,
        commit_log: DLedgerCommitLog,
        queues: ConsumeQueueStore,
        applied: AppliedEntries,
    ) -> None:
        self._config = config
        self._ledger = ledger
        self._head_size = ledger.head_size
        self._commit_log = commit_log
        self._queues = queues
        self._applied = applied
        self.applied_index = Index(-1)
        self.confirm_offset = 0  # bytes
        self.committed_index = Index(-1)
        self.waits_for: str | None = None  # damage that is to be repaired first
        self._term: Term | None = None  # of the entry applied last; None: to be looked up

    @property
    def is_behind(self) -> bool:
        """Whether a step would have something to do, unless the rest is a batch committed in part."""
        return self.applied_index < self.committed_index

    def start_from(self, applied_index: Index, confirm_offset: int) -> None:
        self.applied_index = applied_index
        self.confirm_offset = confirm_offset
        self._term = None

    def step(self) -> int:
        """Dispatches about `reput_step_size_max` bytes of entries. Returns how many entries that were.

        Raises StoreDamagedError: then this member cannot go on. DiskError if the log cannot be read.
        """
        first_index = self.applied_index + 1
        offset_max = self.confirm_offset + self._config.reput_step_size_max
        arrivals: list[DispatchRequest] = []
        waited_for, self.waits_for = self.waits_for, None
        while self.applied_index < self.committed_index and self.confirm_offset < offset_max:
            last_index = self.committed_index
            pending = self._commit_log.pending_from(Index(self.applied_index + 1))
            if pending is not None:
                if pending.first_index == self.applied_index + 1:
                    if pending.last_index > last_index:
                        break  # committed in part: the rest follows, or this leadership ends and what is kept with it
                    self._queues.put(pending.requests)
                    arrivals += pending.requests
                    self.applied_index = pending.last_index
                    self.confirm_offset = pending.end_pos
                    continue
                last_index = min(last_index, Index(pending.first_index - 1))
            try:
                self._dispatch_from_log(last_index, offset_max, arrivals)
            except FaultyEntryError as error:
                if waited_for != str(error):
                    log.error("dispatching waits applied_index=%d: %s", self.applied_index, error)
                self.waits_for = str(error)
                break
            except LedgerError as error:
                raise StoreDamagedError(f"the log cannot be dispatched: {error}") from error
        if arrivals:
            self._applied.arrived(arrivals)
        return self.applied_index + 1 - first_index

    def _dispatch_from_log(self, last_index: Index, offset_max: int, arrivals: list[DispatchRequest]) -> None:
        for batch in self._ledger.batches_from(
            Index(self.applied_index + 1), last_index, self._config.reput_step_size_max
        ):
            kinds = self._ledger.kinds_of(batch)
            if self._head_size:
                # Records alone tell no terms: what Java wrote in a plain store is known from the start.
                self._look_for_java(batch, kinds)
            start = 0
            if any(kinds):
                for number, kind in enumerate(kinds):
                    if kind != EntryKind.MESSAGE:
                        self._dispatch_messages(batch, start, number, arrivals)
                        self._dispatch_system_entry(batch, number, kind)
                        start = number + 1
            self._dispatch_messages(batch, start, len(kinds), arrivals)
            if self.confirm_offset >= offset_max:
                return

    def _look_for_java(self, batch: RecentBatch, kinds: Sequence[int]) -> None:
        term_at = self._ledger.term_at
        if self._term is None:
            self._term = term_at(self.applied_index)
        if term_at(batch.last_index) == self._term:
            return
        for index, kind in enumerate(kinds, batch.first_index):
            term = term_at(Index(index))
            if term != self._term and kind == EntryKind.MESSAGE:
                self._applied.java_term_began(Index(index))
            self._term = term

    def _dispatch_messages(
        self, batch: RecentBatch, start: int, end: int, arrivals: list[DispatchRequest]
    ) -> None:
        if start == end:
            return
        offsets = batch.offsets if end - start == len(batch.offsets) else batch.offsets[start:end]
        try:
            columns = scan_records(
                batch.buffer, offsets, shift=self._head_size, delay_levels=self._config.delay_levels
            )
        except MessageDecodeError as error:
            raise StoreDamagedError(
                f"entries {batch.first_index + start} to {batch.first_index + end - 1} hold no sound message: {error}"
            ) from error
        requests = dispatch_requests(columns)
        self._queues.put(requests)
        arrivals += requests
        self._advance(batch, end - 1, columns.store_timestamps[-1])

    def _dispatch_system_entry(self, batch: RecentBatch, number: int, kind: int) -> None:
        offset, index = batch.offsets[number], Index(batch.first_index + number)
        term = self._ledger.term_at(index)
        assert term is not None, "committed entries are in the log"
        try:
            message = decode_message(batch.buffer, offset + self._head_size)
        except MessageDecodeError as error:
            raise StoreDamagedError(
                f"entry {index} of kind {kind} holds no sound message: {error}"
            ) from error
        self._advance(batch, number, message.store_timestamp)
        if kind == EntryKind.STATE:
            self._applied.state_applied(
                message.body, term, index, batch.pos + offset, message.store_timestamp
            )
        elif kind == EntryKind.NO_OP:
            self._applied.no_op_applied(term, index)
        elif kind != EntryKind.MEMBERSHIP:
            raise StoreDamagedError(f"entry {index} is of kind {kind}, which this version does not know")

    def _advance(self, batch: RecentBatch, number: int, store_timestamp: int) -> None:
        """The entry with this number in the batch is applied."""
        self.applied_index = Index(batch.first_index + number)
        self.confirm_offset = batch.pos + batch.end_offset_of(self.applied_index)
        self._commit_log.last_store_timestamp = max(self._commit_log.last_store_timestamp, store_timestamp)
