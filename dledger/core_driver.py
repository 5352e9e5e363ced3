"""Drives the pure core of one replica: calls it, carries out what it says in order, and tells the embedder.

What an event means is replica.py's, which calls.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import cast

from disk.disk import DiskError, NoSpaceError
from dledger.config import DLedgerConfig, FlushMode
from dledger.core.member import Member
from dledger.core.membership import Membership, pack_membership
from dledger.core.messages import Message, PeerId, PushRequest, VoteResponse
from dledger.core.output import NOTHING, Batch, BeginAnew, Completion, Cut, Output, Role
from dledger.disk_work import DiskWork
from dledger.entry import EntryKind, Index, Pos
from dledger.errors import FaultyEntryError
from dledger.log.errors import LedgerError
from dledger.log.log_store import LogStore
from dledger.log_members import membership_size_fault
from dledger.member_journal import MemberJournal
from dledger.runtime import Embedder, OnDone, OnReadIndex, Runtime

log = logging.getLogger(__name__)


class CoreDriver:
    """Invariants: an Output is carried out wholly before the core is called again; the embedder sees
    commits and cuts in the order in which the core decided them; after a failure nothing is done any more.
    """

    def __init__(
        self,
        config: DLedgerConfig,
        member: Member,
        log_store: LogStore,
        work: DiskWork,
        embedder: Embedder,
        runtime: Runtime,
        journal: MemberJournal,
    ) -> None:
        self.member = member
        self.failure: str | None = None
        self.later: deque[Callable[[], None]] = deque()  # calls out, once what was decided is carried out
        self._config = config
        self._log = log_store
        self._work = work
        self._embedder = embedder
        self._runtime = runtime
        self._journal = journal
        self._draining = False
        self._durable_at_append = config.flush_mode is FlushMode.ASYNC_FLUSH

    def call(self, now_ms: int, ask_core: Callable[..., Output], *arguments: object) -> None:
        """A call of the core from outside, with all that follows from it."""
        try:
            self._carry_out(ask_core(*arguments, now_ms), now_ms)
        except (DiskError, LedgerError, FaultyEntryError) as error:
            # The log cannot be read or written. What was to follow from this call is lost, so the member ends.
            self.fail(f"log failed: {error}", now_ms)
        except Exception as error:
            self._defect(error, now_ms)
            raise
        if self.later:
            self.drain()

    def _defect(self, error: Exception, now_ms: int) -> None:
        """What nobody expected was raised with an Output half carried out: a member that went on would say what it
        has not done. The stack is for whoever catches it.
        """
        self.fail(f"a defect of this program: {type(error).__name__}: {error}", now_ms)
        self._runtime.call_soon(self.drain)

    def _carry_out(self, output: Output, now_ms: int) -> None:
        if output is NOTHING:
            return
        if output.hard_state is not None:
            self._journal.hard_state_changed(output.hard_state)
            self._work.save_hard_state(output.hard_state)
        if output.cut is not None:
            self._begin_cut(output.cut)
        appended = False
        no_space: NoSpaceError | None = None
        for pushed in output.appends:
            try:
                self._log.append_range(pushed.payload, pushed.skip)
                appended = True
            except NoSpaceError as error:
                no_space = error
        for envelope in output.messages:
            self._send(envelope.to, envelope.message)
        later = self.later
        if output.committed_index is not None:
            committed_index = output.committed_index
            later.append(lambda: self._embedder.committed(committed_index))
        for completion in output.completions:
            self._complete(completion)
        self._complete_reads(output)
        if output.role_change is not None:
            change = output.role_change
            self._journal.role_changed(change)
            later.append(lambda: self._embedder.role_changed(change))
        if output.transfer_change is not None:
            self._journal.transfer_changed(output.transfer_change)
        if (wanted := output.membership_wanted) is not None:
            later.append(lambda: self.append_membership(wanted, None, now_ms))
        if output.no_op_wanted:
            later.append(lambda: self.append_no_op(now_ms))
        if output.probe_wanted:
            self._work.probe_space(now_ms)
        if output.refused is not None:
            self._journal.refused(output.refused)
        if output.fatal is not None:
            self.fail(output.fatal, now_ms)
            return
        # Calls of the core again, now that this Output is carried out.
        if appended:
            self._work.appended()
            if self._durable_at_append:
                self._carry_out(self._durable_now(now_ms), now_ms)
        if no_space is not None:
            self._no_space(no_space, now_ms)

    def _begin_cut(self, cut: Cut | BeginAnew) -> None:
        self._journal.cut_begins(cut, self._log.ledger_begin_index, self._log.ledger_end_index)
        self._work.begin_cut(cut)
        if isinstance(cut, Cut):
            self.later.append(partial(self._embedder.log_cut, cut.from_index))
        else:
            self.later.append(partial(self._embedder.log_began_anew, cut.before_begin_index))

    def drain(self) -> None:
        """Calls out, also for what those calls bring about. An embedder's error is its own: it ends in the
        shell.
        """
        if self._draining:
            return
        self._draining = True
        try:
            while self.later:
                self.later.popleft()()
        finally:
            self._draining = False

    def _complete(self, completion: Completion) -> None:
        self.later.append(partial(cast(OnDone, completion.closure), completion.status))

    def _complete_reads(self, output: Output) -> None:
        for completion in output.read_completions:
            self.later.append(partial(cast(OnReadIndex, completion.closure), completion.outcome))

    def synced(self, now_ms: int) -> None:
        """A sync is done, or the mark has moved behind one. Under ASYNC_FLUSH it matters for what waits for it, see
        _durable_at_end(); and that the disk gets something done, for a hung one does not.

        What the mark has to tell of, and what is behind that, counts as durable once it does.
        """
        if self._log.ledger_end_index < self._log.ledger_begin_index:
            return  # it begins anew, and is durable when that is
        if self._durable_at_append:
            end_index = self._durable_at_end()
        else:
            end_index = min(self._log.durable_index, self._log.index_before_untold)
        self.call(now_ms, self.member.synced, end_index)

    def _durable_now(self, now_ms: int) -> Output:
        """Under ASYNC_FLUSH, after an append."""
        end_index = self._durable_at_end()
        if end_index <= self.member.durable_index:
            return NOTHING  # what waits for a sync has waited since before
        return self.member.synced(end_index, now_ms)

    def _durable_at_end(self) -> Index:
        """Up to where entries count as durable under ASYNC_FLUSH: to the end, but for those that wait for the mark, see
        synced(), and so for a sync.
        """
        end_index = self._log.index_before_untold
        if end_index < self._log.ledger_end_index:
            self._work.start_sync()
        return end_index

    def _send(self, to: PeerId, message: Message) -> None:
        buffers: Sequence[bytes] = ()
        if type(message) is PushRequest and message.entries is not None:
            try:
                buffers = self._log.read_range(message.entries)
            except FaultyEntryError as error:
                log.warning("%s push left out peer=%s reason=%s", self, to, error)
                return  # as if it were lost on its way: the dispatcher compares again
        elif type(message) is VoteResponse:
            self._journal.vote_said(to, message)
        self._runtime.send(to, message, buffers)

    def drop(self, peer: PeerId, reason: str) -> None:
        log.error("%s push refused peer=%s reason=%s", self, peer, reason)
        self._runtime.drop_connection(peer, reason)

    def append_no_op(self, now_ms: int) -> None:
        """The own-term no-op, unless this member has ceased to lead."""
        member = self.member
        if self.failure is not None or member.role is not Role.LEADER:
            return
        entry = self._embedder.no_op(member.curr_term)
        (pos,) = self._log.reserve([entry.size])
        # When it fails, append() has told the core, which asks again as soon as there is space.
        with suppress(DiskError, LedgerError):
            self.append([entry.encode(pos, now_ms)], [pos], EntryKind.NO_OP, None, now_ms)

    def append_membership(self, membership: Membership, on_done: OnDone | None, now_ms: int) -> None:
        if self.failure is not None or self.member.changes.refusal() is not None:
            return
        if (fault := membership_size_fault(self._embedder, membership)) is not None:
            self._journal.change_impossible(fault)
            return
        entry = self._embedder.membership_entry(pack_membership(membership))
        (pos,) = self._log.reserve([entry.size])
        # The core wants a change again that it made itself; for one that was asked for, on_done is not called.
        with suppress(DiskError, LedgerError):
            self.append([entry.encode(pos, now_ms)], [pos], EntryKind.MEMBERSHIP, on_done, now_ms)

    def _no_space(self, error: NoSpaceError, now_ms: int) -> None:
        self._journal.space_changed(False, error)
        self._work.no_space(now_ms)
        self._carry_out(self.member.write_failed_no_space(True, now_ms), now_ms)

    def fail(self, reason: str, now_ms: int) -> None:
        """Ends this member. Of what the core still has to say only the ends of pending appends and reads are heard."""
        if self.failure is not None:
            return
        self.failure = reason
        log.critical("%s stopping reason=%s", self, reason)
        output = self.member.stop(now_ms)
        for completion in output.completions:
            self._complete(completion)
        self._complete_reads(output)
        self.later.append(lambda: self._runtime.failed(reason))

    def append(
        self,
        bodies: Sequence[bytes],
        positions: Sequence[Pos],
        kind: EntryKind,
        on_done: OnDone | None,
        now_ms: int,
        head_kind: EntryKind | None = None,
    ) -> Batch:
        """As Replica.append()."""
        try:
            batch = self._log.append(bodies, positions, self.member.curr_term, kind, head_kind)
            self._carry_out(self.member.append(batch, on_done, now_ms), now_ms)
            self._work.appended()
            if self._durable_at_append:
                self._carry_out(self._durable_now(now_ms), now_ms)
        except NoSpaceError as error:
            self._no_space(error, now_ms)
            raise
        except (DiskError, LedgerError, FaultyEntryError) as error:
            self.fail(f"log failed: {error}", now_ms)
            raise
        except Exception as error:
            self._defect(error, now_ms)
            raise
        finally:
            if self.later and not self._draining:
                self._runtime.call_soon(self.drain)
        return batch

    def __str__(self) -> str:
        """The prefix of log lines."""
        return f"[{self._config.self_id}][{self.member.role.value}][term={self.member.curr_term}]"
