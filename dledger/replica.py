"""One replica of the log: the pure core, the log store and what lies between; no sockets, threads or clock.

What happens to a member comes in here: ticks, messages, finished jobs, connections, appends, what operators ask for.
The core says what is to be done about it, in an Output, which is carried out here from top to bottom before the core is
called again; calls to the embedder come last. When disk work is due is disk_work.py's. The server runs a replica on an
event loop, the simulator in virtual time: same calls, same results.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Sequence, Set
from contextlib import suppress
from functools import partial
from random import Random
from typing import Any

from disk.disk import DiskError, NoSpaceError
from dledger.config import Address, DLedgerConfig, FlushMode
from dledger.core.member import Member
from dledger.core.membership import CurrentMembers, Membership, pack_membership
from dledger.core.messages import LedgerBegin, Message, PeerId, PushRequest, VoteResponse
from dledger.core.output import NOTHING, Batch, BeginAnew, Cut, Output, Role
from dledger.core.refusal import Refusal, RefusalReason
from dledger.disk_work import CutDone, DiskWork, Failed, HardStateSaved, SpaceProbed, Synced
from dledger.entry import EntryKind, Index, Pos
from dledger.errors import FaultyEntryError
from dledger.formation import GroupIdentity
from dledger.group_formation import GroupFormation
from dledger.log.errors import LedgerError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.log_members import LogMembers, member_addresses, membership_size_fault
from dledger.member_journal import MemberJournal
from dledger.pushed_entries import PushNotSoundError, Received, join_pushes, verify_pushed
from dledger.reader_answers import answer_get
from dledger.repair_answers import answer_repair
from dledger.repairer import Repairer
from dledger.rpc.handshake import DISK_UUID_SIZE, WIRE_VERSION_MAX
from dledger.rpc.requests import GetRequest, GetResponse, RepairMessage, RepairRequest, RepairResponse
from dledger.run_record import end_run
from dledger.runtime import Embedder, OnDone, OnReadIndex, Runtime
from dledger.scrub_walks import scrubber_of

log = logging.getLogger(__name__)


class Replica:
    """Invariants: an Output is carried out wholly before the core is called again; the embedder sees commits and cuts
    in the order in which the core decided them; after a failure no event has any effect.
    """

    def __init__(
        self,
        config: DLedgerConfig,
        log_store: LogStore,
        quorum_state: QuorumState,
        embedder: Embedder,
        runtime: Runtime,
        random: Random,
        now_ms: int,
        *,
        boot_id: str = "",
    ) -> None:
        """Blocks on a sync: who this member is, is on disk before it speaks. Raises DLedgerConfigError,
        DiskError.
        """
        self.config = config
        self.log = log_store
        self.failure: str | None = None  # why this member has ended by itself
        self.applied_index = Index(-1)  # kept by the embedder
        self._features: dict[PeerId, Collection[str]] = {}  # of the embedder, that peers have told of
        self._quorum_state = quorum_state
        self._embedder = embedder
        self._runtime = runtime
        self._random = random
        # Calls to the embedder and to those who wait, each with its argument: due once an Output is carried out.
        self._calls: deque[tuple[Any, Any]] = deque()
        self._is_calling = False
        self._durable_at_append = config.flush_mode is FlushMode.ASYNC_FLUSH
        # What follows from each job under way.
        self._ended: dict[DiskJob, Callable[[DiskJob, Exception | None, int], None]] = {}
        self._work = DiskWork(
            config, log_store, quorum_state, partial(self._submit, self._work_ended), now_ms
        )
        self.scrubber = scrubber_of(
            config, log_store, quorum_state, partial(self._submit, self._scrub_ended), now_ms
        )
        self.repairer = Repairer(
            config,
            log_store,
            lambda peer, request: runtime.send(peer, request, ()),
            partial(self._submit, self._repair_ended),
            self._begin_at,
            self._cut_at,
            self._nobody_has,
            lambda: max(self.member.committed_index, self.applied_index),
            lambda: (self.member.curr_term, self.member.leader_id),
        )
        self.journal = MemberJournal(config.self_id, quorum_state.hard_state)
        disk_uuid = random.randbytes(DISK_UUID_SIZE)
        self.formation = GroupFormation(config, quorum_state, log_store, disk_uuid, boot_id)
        self.member = self._make_member(now_ms)

    # -- events ----------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """As TickPace says."""
        if self.failure is not None:
            return
        self._ask(now_ms, self.member.tick)
        self.journal.members_are(self.member.membership, self.member.membership_index)
        self._guarded(now_ms, self._work.tick, self.member.committed_index, now_ms)
        self.scrubber.tick(now_ms)
        self._guarded(now_ms, self.repairer.tick, now_ms)

    def receive_all(self, messages: Sequence[Received], now_ms: int) -> None:
        """What one read of a peer's connection has brought."""
        for message, payload in join_pushes(messages) if len(messages) > 1 else messages:
            self.receive(message, now_ms, payload)

    def receive(self, message: Message | RepairMessage, now_ms: int, payload: bytes = b"") -> None:
        """`payload`: the raw entry bytes of an APPEND, or of an answer to a repair. A range that is not sound goes no
        further.
        """
        if type(message) is RepairRequest or type(message) is RepairResponse:
            self._receive_repair(message, now_ms, payload)
            return
        if self.failure is not None or not self.formation.is_formed:
            return
        if type(message) is PushRequest and message.entries is not None:
            try:
                message = verify_pushed(message, payload)
            except PushNotSoundError as error:
                log.error("%s push refused peer=%s reason=%s", self, message.leader_id, error)
                self._runtime.drop_connection(message.leader_id, str(error))
                return
        elif type(message) is VoteResponse:
            self.journal.vote_heard(message)
        self._ask(now_ms, self.member.step, message)

    def _receive_repair(self, message: RepairMessage, now_ms: int, entries: bytes) -> None:
        if isinstance(message, RepairResponse):
            self._guarded(now_ms, self.repairer.on_response, message, entries, now_ms)
            return

        def answer() -> None:
            size_max = self.config.member_config.push_size_max
            response, buffers = answer_repair(self.log, self.config.self_id, message, size_max)
            self._runtime.send(message.member_id, response, buffers)

        self._guarded(now_ms, answer)

    def _submit(self, ended: Callable[[DiskJob, Exception | None, int], None], job: DiskJob) -> None:
        self._ended[job] = ended
        self._runtime.submit(job)

    def job_done(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        self._guarded(now_ms, self._ended.pop(job), job, error, now_ms)

    def _work_ended(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        match self._work.settle(job, error, now_ms):
            case Synced():
                self._synced(now_ms)
            case HardStateSaved(sequence):
                self._ask(now_ms, self.member.hard_state_saved, sequence)
            case CutDone():
                self._ask(now_ms, self.member.cut_done)
            case SpaceProbed(has_space):
                self.journal.space_changed(has_space, "a probe")
                self._ask(now_ms, self.member.write_failed_no_space, not has_space)
            case Failed(reason):
                self._fail(reason, now_ms)
            case None:
                pass

    def _scrub_ended(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        failure = self.scrubber.job_done(job, error, now_ms)
        if failure is not None:
            self._fail(failure, now_ms)

    def _repair_ended(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        if error is None or isinstance(error, NoSpaceError):
            self.repairer.job_done(error, now_ms)
        else:
            self._fail(f"{job.kind} job: {error!r}", now_ms)

    def _synced(self, now_ms: int) -> None:
        """A sync is done, or the mark has moved. Under ASYNC_FLUSH it matters for what waits for that, and as a sign
        that the disk gets something done, which a hung one does not.
        """
        log = self.log
        if log.ledger_end_index < log.ledger_begin_index:
            return  # it begins anew, and is durable when that is
        self._ask(now_ms, self.member.synced, self._durable_end())

    def peer_seen(
        self,
        peer: PeerId,
        disk_uuid: bytes,
        group: GroupIdentity | None,
        now_ms: int,
        *,
        begin_pos: int,
        peers: Collection[PeerId] = (),
        wire_version: int = WIRE_VERSION_MAX,
        features: Collection[str] = (),
    ) -> bool:
        """What a peer proved to be, before peer_connected(), the version that both speak, and what it knows of features
        of the embedder.

        Whether this member has been formed just now: then peers that know it as unformed are to be told soon, by
        shaking hands anew.

        Raises HandshakeRefusedError if what the peer says cannot be.
        """
        was_formed = self.formation.is_formed
        try:
            is_formed_now = self.formation.peer_seen(peer, disk_uuid, group, begin_pos=begin_pos, peers=peers)
        except DiskError as error:
            self._fail(f"the group's identity could not be stored: {error}", now_ms)
            self._call_out()
            return False
        self._features[peer] = features
        if was_formed:
            self._ask(now_ms, self.member.peer_shown, peer, disk_uuid, wire_version)
        if not is_formed_now:
            return False
        # Unformed it has heard and said nothing, so there is nothing to keep. One without a quorum state has stored the
        # term of its last entry, or was about to: that is on disk with the group.
        self._work.hard_state_stored()
        self.member = self._make_member(now_ms)
        return True

    def members_without(self, feature: str) -> list[PeerId]:
        """The other members that have not told this one that they know it. What one has told counts until it tells
        something else, also while it is away.
        """
        return [
            peer
            for peer in self.member.membership.members
            if peer != self.config.self_id and feature not in self._features.get(peer, ())
        ]

    def peer_connected(self, peer: PeerId, now_ms: int, *, repairs: bool = True) -> None:
        """The connection is up by which we ask it. `repairs`: it can be asked for entries that are damaged here."""
        if self.failure is None:
            if repairs:
                self.repairer.peer_connected(peer)
            self._ask(now_ms, self.member.peer_connected, peer)

    def peer_disconnected(self, peer: PeerId, now_ms: int) -> None:
        """The connection is closed by which we ask it, or the one by which it asks us."""
        if self.failure is None:
            self.repairer.peer_disconnected(peer)
            self.formation.peer_lost(peer)
            self._ask(now_ms, self.member.peer_disconnected, peer)

    def transfer_leadership(self, target: PeerId | None, reason: str, now_ms: int) -> Refusal | None:
        """To `target`, or without one to the member that lacks least. None: it is under way, until the member's
        `transfer_target` is None again; whether it has succeeded shows in who leads then.
        """
        member = self.member
        refusal = member.check_transfer(target)
        if refusal is None:
            self._ask(now_ms, member.transfer_leadership, target or member.most_caught_up(), reason)
        return refusal

    def leave(self, now_ms: int) -> None:
        """Before stop(), while peers are connected: hands leadership over if it is here, and asks for none any more."""
        if self.failure is None:
            self._ask(now_ms, self.member.leave)

    def stop(self, now_ms: int) -> None:
        """Pending appends end as UNKNOWN; what was appended is being synced until `idle`."""
        if self.failure is None:
            self.scrubber.stop()
            self._ask(now_ms, self.member.stop)
            self._work.start_sync()

    @property
    def idle(self) -> bool:
        return self._work.idle and self.scrubber.idle and self.repairer.idle

    def close(self, *, clean: bool) -> None:
        """Blocks. After stop() and when idle it may be `clean`; else the files are left as a crash leaves
        them.
        """
        try:
            self.log.close(clean=clean)
            if clean:
                end_run(self.config.directory, self._quorum_state, self.log)
        except NoSpaceError as error:
            text = "the next start takes this one for killed directory=%s error=%s"
            log.warning(text, self.config.directory, error)
        finally:
            self._quorum_state.close()

    # -- what the core says ----------------------------------------------------------------------------------

    def _ask(self, now_ms: int, ask_core: Callable[..., Output], *arguments: object) -> None:
        """Calls the core, and carries out all that follows from it."""
        try:
            output = ask_core(*arguments, now_ms)
            if output is not NOTHING:
                self._carry_out(output, now_ms)
        except (DiskError, LedgerError, FaultyEntryError) as error:
            # The log cannot be read or written. What was to follow from this call is lost, so the member ends.
            self._fail(f"log failed: {error}", now_ms)
        except Exception as error:
            self._defect(error, now_ms)
            raise
        if self._calls:
            self._call_out()

    def _carry_out(self, output: Output, now_ms: int) -> None:
        calls = self._calls
        if output.hard_state is not None:
            self.journal.hard_state_changed(output.hard_state)
            self._work.save_hard_state(output.hard_state)
        if output.cut is not None:
            self._begin_cut(output.cut)
        appended = False
        no_space: NoSpaceError | None = None
        for pushed in output.appends:
            try:
                self.log.append_range(pushed.payload, pushed.skip)
                appended = True
            except NoSpaceError as error:
                no_space = error
        for envelope in output.messages:
            self._send(envelope.to, envelope.message)
        if output.committed_index is not None:
            calls.append((self._embedder.committed, output.committed_index))
        for completion in output.completions:
            calls.append((completion.closure, completion.status))
        for read in output.read_completions:
            calls.append((read.closure, read.outcome))
        if output.role_change is not None:
            self.journal.role_changed(output.role_change)
            calls.append((self._embedder.role_changed, output.role_change))
        if output.transfer_change is not None:
            self.journal.transfer_changed(output.transfer_change)
        if output.membership_wanted is not None:
            calls.append((partial(self._append_membership, output.membership_wanted, None), now_ms))
        if output.no_op_wanted:
            calls.append((self._append_no_op, now_ms))
        if output.probe_wanted:
            self._work.probe_space(now_ms)
        if output.refused is not None:
            self.journal.refused(output.refused)
        if output.fatal is not None:
            self._fail(output.fatal, now_ms)
            return
        # The core again, now that this Output is carried out.
        if appended:
            self._work.appended()
            if self._durable_at_append:
                end_index = self._durable_end()
                # Else what waits for a sync has waited since before.
                if end_index > self.member.durable_index:
                    self._carry_out(self.member.synced(end_index, now_ms), now_ms)
        if no_space is not None:
            self._no_space(no_space, now_ms)

    def _begin_cut(self, cut: Cut | BeginAnew) -> None:
        self.journal.cut_begins(cut, self.log.ledger_begin_index, self.log.ledger_end_index)
        self._work.begin_cut(cut)
        if isinstance(cut, Cut):
            self._calls.append((self._embedder.log_cut, cut.from_index))
        else:
            self._calls.append((self._embedder.log_began_anew, cut.before_begin_index))

    def _send(self, to: PeerId, message: Message) -> None:
        buffers: Sequence[bytes] = ()
        if type(message) is PushRequest:
            if message.entries is not None:
                try:
                    buffers = self.log.read_range(message.entries)
                except FaultyEntryError as error:
                    log.warning("%s push left out peer=%s reason=%s", self, to, error)
                    return  # as if it were lost on its way: the dispatcher compares again
        elif type(message) is VoteResponse:
            self.journal.vote_said(to, message)
        self._runtime.send(to, message, buffers)

    def _durable_end(self) -> Index:
        """Up to where entries count as durable: as far as they are synced or, under ASYNC_FLUSH, to the end. What the
        mark has to tell of, and what follows that, waits for the mark, and so for a sync.
        """
        log = self.log
        end_index = log.index_before_untold
        if not self._durable_at_append:
            return min(end_index, log.durable_index)
        if end_index < log.ledger_end_index:
            self._work.start_sync()
        return end_index

    def _no_space(self, error: NoSpaceError, now_ms: int) -> None:
        self.journal.space_changed(False, error)
        self._work.no_space(now_ms)
        self._carry_out(self.member.write_failed_no_space(True, now_ms), now_ms)

    def _call_out(self) -> None:
        """Makes the calls that are due, also those that these bring about. An embedder's error is its own: it ends in
        the shell.
        """
        if self._is_calling:
            return
        self._is_calling = True
        calls = self._calls
        try:
            while calls:
                call, argument = calls.popleft()
                call(argument)
        finally:
            self._is_calling = False

    def _guarded(self, now_ms: int, step: Callable[..., None], *arguments: object) -> None:
        """A step that uses the log without the core."""
        if self.failure is not None:
            return
        try:
            step(*arguments)
        except (DiskError, LedgerError) as error:
            self._fail(f"log failed: {error}", now_ms)
        if self._calls:
            self._call_out()

    def _defect(self, error: Exception, now_ms: int) -> None:
        """What nobody expected was raised with an Output half carried out: a member that went on would say what it
        has not done. The stack is for whoever catches it.
        """
        self._fail(f"a defect of this program: {type(error).__name__}: {error}", now_ms)
        self._runtime.call_soon(self._call_out)

    def _fail(self, reason: str, now_ms: int) -> None:
        """Ends this member. Of what the core still has to say only the ends of pending appends and reads are heard."""
        if self.failure is not None:
            return
        self.failure = reason
        log.critical("%s stopping reason=%s", self, reason)
        output = self.member.stop(now_ms)
        for completion in output.completions:
            self._calls.append((completion.closure, completion.status))
        for read in output.read_completions:
            self._calls.append((read.closure, read.outcome))
        self._calls.append((self._runtime.failed, reason))

    @property
    def group_uuid(self) -> bytes | None:
        """None as long as the group is not formed."""
        group = self.formation.group
        return group.group_uuid if group is not None else None

    def committed_entries(self, request: GetRequest, size_max: int) -> tuple[GetResponse, list[bytes]]:
        """For readers that are no members, from any member. Raises DiskError."""
        return answer_get(self.log, self.member.committed_index, request, size_max)

    # -- appending -------------------------------------------------------------------------------------------

    @property
    def wait_ack_ms_max(self) -> int:
        """After so long an append that no majority holds ends as unknown."""
        return self.config.member_config.wait_ack_ms_max

    def append(
        self,
        body_sizes: Sequence[int],
        fill: Callable[[Sequence[Pos]], Sequence[bytes]],
        kind: EntryKind,
        on_done: OnDone | None,
        now_ms: int,
        *,
        head_kind: EntryKind | None = None,
    ) -> Batch | Refusal:
        """Appends entries, all or none. `fill` gives their bodies, which have these sizes, for the positions that they
        get; what it raises passes, and nothing is appended. `on_done` is called once, after this has returned, unless
        this refuses or raises. `head_kind`: of the first entry, where it differs from that of the others.

        Raises EntryTooLargeError and NoSpaceError (the log is unchanged; without space it refuses for a while),
        DiskError and LedgerError (the member stops).
        """
        size = sum(body_sizes) + self.log.head_size * len(body_sizes)
        refusal = self.member.check_append(size, len(body_sizes))
        if refusal is not None:
            return refusal
        positions = self.log.reserve(body_sizes)
        return self._write(fill(positions), positions, kind, on_done, now_ms, head_kind)

    def _write(
        self,
        bodies: Sequence[bytes],
        positions: Sequence[Pos],
        kind: EntryKind,
        on_done: OnDone | None,
        now_ms: int,
        head_kind: EntryKind | None = None,
    ) -> Batch:
        try:
            batch = self.log.append(bodies, positions, self.member.curr_term, kind, head_kind)
            durable_index = self._durable_end() if self._durable_at_append else None
            self._carry_out(self.member.append(batch, on_done, now_ms, durable_index), now_ms)
            self._work.appended()
        except NoSpaceError as error:
            self._no_space(error, now_ms)
            raise
        except (DiskError, LedgerError, FaultyEntryError) as error:
            self._fail(f"log failed: {error}", now_ms)
            raise
        except Exception as error:
            self._defect(error, now_ms)
            raise
        finally:
            if self._calls and not self._is_calling:
                self._runtime.call_soon(self._call_out)
        return batch

    def _append_no_op(self, now_ms: int) -> None:
        """The own-term no-op, unless this member has ceased to lead."""
        member = self.member
        if self.failure is not None or member.role is not Role.LEADER:
            return
        entry = self._embedder.no_op(member.curr_term)
        (pos,) = self.log.reserve([entry.size])
        # When it fails, _write() has told the core, which asks again as soon as there is space.
        with suppress(DiskError, LedgerError):
            self._write([entry.encode(pos, now_ms)], [pos], EntryKind.NO_OP, None, now_ms)

    def _append_membership(self, membership: Membership, on_done: OnDone | None, now_ms: int) -> None:
        if self.failure is not None or self.member.changes.refusal() is not None:
            return
        if (fault := membership_size_fault(self._embedder, membership)) is not None:
            self.journal.change_impossible(fault)
            return
        entry = self._embedder.membership_entry(pack_membership(membership))
        (pos,) = self.log.reserve([entry.size])
        # The core wants a change again that it made itself; for one that was asked for, on_done is not called.
        with suppress(DiskError, LedgerError):
            self._write([entry.encode(pos, now_ms)], [pos], EntryKind.MEMBERSHIP, on_done, now_ms)

    def add_member(self, peer: PeerId, address: str, on_done: OnDone, now_ms: int) -> Refusal | None:
        """A learner, which becomes a voter by itself as soon as it can. `on_done` is called once it is one, or that is
        unknown; never when this returns a refusal.
        """
        return self._change_members(self.member.changes.add(peer, address), on_done, now_ms)

    def remove_member(self, peer: PeerId, on_done: OnDone, now_ms: int) -> Refusal | None:
        return self._change_members(self.member.changes.remove(peer), on_done, now_ms)

    def _change_members(self, wanted: Membership | Refusal, on_done: OnDone, now_ms: int) -> Refusal | None:
        if isinstance(wanted, Refusal):
            return wanted
        if (fault := membership_size_fault(self._embedder, wanted)) is not None:
            return Refusal(RefusalReason.MEMBERS_TOO_LARGE, fault)
        index = self.log.ledger_end_index
        self._append_membership(wanted, on_done, now_ms)
        if self.log.ledger_end_index == index:
            return Refusal(RefusalReason.DISK_FULL, f"the log of {self.config.self_id} takes no entry")
        return None

    def delete_first_file(self, now_ms: int) -> bool:
        """Deletes the oldest data file: the caller knows what is no longer needed. Whether that has begun: one goes at
        a time, and only below the commit and the synced mark.
        """
        if self.failure is not None:
            return False
        try:
            last_index = self.log.first_file_last_index
            if last_index is None or last_index > self.member.committed_index:
                return False
            return self._work.delete_first_file()
        except (DiskError, LedgerError) as error:
            self._fail(f"log failed: {error}", now_ms)
            self._call_out()
            return False

    def _begin_at(self, begin: LedgerBegin, without: Set[PeerId]) -> bool:
        """As by retention, what lies in front of `begin` goes: there is damage in it, which no peer can repair, for all
        are `without` those entries. What is behind stays, so nothing that counts as acknowledged is lost or doubted.

        Not while the leader may still have the entries, and not by the leader, whose state may stand on them: it lets
        another lead first.
        """
        member = self.member
        if member.role is Role.LEADER:
            member.damage_stays()
        if member.leader_id not in without or member.committed_index < begin.before_index:
            return False
        if not self._work.begin_at(begin):
            return False
        if self.applied_index < begin.before_index:
            before_index, committed_index = begin.before_index, member.committed_index
            self._calls.append((self._embedder.log_began_anew, before_index))
            self._calls.append((self._embedder.committed, committed_index))
        return True

    def _cut_at(self, from_index: Index, now_ms: int) -> None:
        """Damage begins there, and the leader's history is another in it, or behind it."""
        leader_id = self.member.leader_id
        if leader_id is not None and from_index > self.applied_index:
            self._ask(now_ms, self.member.cut_damaged, from_index, leader_id)

    def _nobody_has(self, faulty: FaultyRange, now_ms: int) -> None:
        """No peer that is connected."""
        self._ask(now_ms, self.member.nobody_has, faulty.first_index, faulty.last_index)

    def set_low_space(self, reason: str | None) -> None:
        """Why the embedder takes no more messages for want of space; None when it does. Refuses nothing here."""
        self.member.set_low_space(reason)

    # -- reading ---------------------------------------------------------------------------------------------

    def read_index(self, on_done: OnReadIndex, now_ms: int) -> None:
        """How far the embedder must have applied for a read that begins now, so as not to be stale; or why nobody can
        tell, which is definite. `on_done` is called once, within this call if it can be said at once.
        """
        self._ask(now_ms, self.member.read_index, on_done)

    # -- who the members are ---------------------------------------------------------------------------------

    def logged_membership(self) -> Membership:
        """Read from the log. Raises LedgerDamagedError, DiskError."""
        return self._log_members().membership()

    @property
    def addresses(self) -> dict[PeerId, Address]:
        """Of all members that are to be spoken with. Those of the conf alone count until the group is formed."""
        if not self.formation.is_formed:
            return dict(self.config.peers)
        member = self.member
        return member_addresses(member.membership, member.leaving_voters, self.config.peers)

    def _make_member(self, now_ms: int) -> Member:
        self.journal.hard_state_changed(self._quorum_state.hard_state)
        self_id, identity = self.config.self_id, self.formation.identity
        formed_alone = identity.pairs == ((self_id, identity.disk_uuid),)
        return Member(
            self.config.member_config,
            self.log,
            self._quorum_state.hard_state,
            self._random,
            now_ms,
            durable_index=self.log.durable_index,
            can_vote=self.formation.is_formed,
            members=CurrentMembers(
                self_id, identity.disk_uuid, self._log_members(), formed_alone=formed_alone
            ),
        )

    def _log_members(self) -> LogMembers:
        return LogMembers(
            self.log, self.formation.group, self.config.peers, self._embedder.membership_payload
        )

    def __str__(self) -> str:
        """The prefix of log lines."""
        return f"[{self.config.self_id}][{self.member.role.value}][term={self.member.curr_term}]"
