"""One replica of the log: the pure core, the log store and what lies between; no sockets, threads or clock.

The core says what is to be done (`Output`), the log store can do it; this module carries it out in order,
verifies what peers push and tells the embedder. When disk work is due is disk_work.py's. The server runs a
replica on an event loop, the simulator in virtual time: same calls, same results.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import cast

from msgspec.structs import replace

from disk.disk import DiskError, NoSpaceError
from dledger.config import DLedgerConfig, FlushMode, PeerAddress, parse_address
from dledger.core.member import Member
from dledger.core.membership import CurrentMembers, Membership, pack_membership
from dledger.core.messages import Message, PeerId, PushRequest, VoteResponse
from dledger.core.output import (
    NOTHING,
    AppendRefusal,
    Batch,
    BeginAnew,
    Completion,
    Cut,
    Output,
    RefusalReason,
    Role,
    TransferRefusal,
)
from dledger.disk_work import CutDone, DiskWork, Failed, HardStateSaved, SpaceProbed, Synced
from dledger.entry import EntryKind, Index, Pos
from dledger.errors import FaultyEntryError, HandshakeRefusedError
from dledger.formation import Formation, Formed, GroupIdentity
from dledger.log.errors import LedgerError
from dledger.log.java_files import curr_term_job
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.membership_entries import MEMBERSHIP_SIZE_MAX
from dledger.log.quorum_state import QuorumState
from dledger.log_members import LogMembers
from dledger.member_journal import MemberJournal
from dledger.pushed_entries import PushNotSoundError, verify_pushed
from dledger.repair_answers import answer_repair
from dledger.repairer import Repairer
from dledger.rpc.handshake import DISK_UUID_SIZE, WIRE_VERSION_MAX
from dledger.rpc.requests import (
    GetRequest,
    GetResponse,
    MetadataRequest,
    MetadataResponse,
    RepairMessage,
    RepairResponse,
)
from dledger.rpc.response_code import ResponseCode
from dledger.run_record import begin_run, end_run, store_formed
from dledger.runtime import Embedder, OnDone, Runtime
from dledger.scrub_walks import scrubber_of

log = logging.getLogger(__name__)


class Replica:
    """Invariants: an Output is carried out wholly before the core is called again; the embedder sees
    commits and cuts in the order in which the core decided them; after a failure nothing is done any more.
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
        self.applied_index = Index(-1)  # kept by the embedder, for status
        self.failure: str | None = None
        self._quorum_state = quorum_state
        self._embedder = embedder
        self._runtime = runtime
        self._random = random
        self._work = DiskWork(config, log_store, quorum_state, runtime.submit, now_ms)
        self.scrubber = scrubber_of(config, log_store, quorum_state, runtime.submit, now_ms)
        self.repairer = Repairer(
            config, log_store, lambda peer, request: runtime.send(peer, request, ()), runtime.submit
        )
        self._durable_at_append = config.flush_mode is FlushMode.ASYNC_FLUSH
        self._later: deque[Callable[[], None]] = deque()
        self._draining = False
        self._is_full = False
        self.journal = MemberJournal(config.self_id, quorum_state.hard_state)
        self.identity = begin_run(config, quorum_state, log_store, random.randbytes(DISK_UUID_SIZE), boot_id)
        self._formation: Formation | None = None
        if self.identity.group_uuid is None:
            self._formation = Formation(
                config.self_id, config.peers, self.identity.disk_uuid, begin_pos=self.begin_pos
            )
            self._form(self._formation.start())
        self.member = self._make_member(now_ms)

    # -- events ----------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Every `config.tick_interval_ms`."""
        if self.failure is not None:
            return
        self._call(now_ms, self.member.tick)
        self.journal.members_are(self.member.membership, self.member.membership_index)
        self._work.tick(now_ms)
        self.scrubber.tick(now_ms)
        self._repair(now_ms, self.repairer.tick, now_ms)

    def receive(self, message: Message, now_ms: int, payload: bytes = b"") -> None:
        """`payload`: the raw entry bytes of an APPEND. A range that is not sound goes no further."""
        if self.failure is not None or self._formation is not None:
            return
        if type(message) is PushRequest and message.entries is not None:
            try:
                verified = verify_pushed(message, payload)
            except PushNotSoundError as error:
                self._drop(message.leader_id, str(error))
                return
            message = replace(message, payload=verified)
        elif type(message) is VoteResponse:
            self.journal.vote_heard(message)
        self._call(now_ms, self.member.step, message)

    def receive_repair(self, message: RepairMessage, now_ms: int, entries: bytes = b"") -> None:
        """`entries`: raw bytes of an answer, which are proved before they are used."""
        if self.failure is not None:
            return
        if isinstance(message, RepairResponse):
            self._repair(now_ms, self.repairer.on_response, message, entries, now_ms)
            return

        def answer() -> None:
            size_max = self.config.member_config.push_size_max
            response, buffers = answer_repair(self.log, self.config.self_id, message, size_max)
            self._runtime.send(message.member_id, response, buffers)

        self._repair(now_ms, answer)

    def _repair(self, now_ms: int, step: Callable[..., None], *arguments: object) -> None:
        if self.failure is not None:
            return
        try:
            step(*arguments)
        except (DiskError, LedgerError) as error:
            self._fail(f"log failed: {error}", now_ms)
            self._drain()

    def job_done(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        if self.failure is not None:
            return
        if self.scrubber.is_own(job):
            self._scrubbed(job, error, now_ms)
            return
        if error is None and self.repairer.owns(job):
            self.repairer.job_done()
            return
        match self._work.settle(job, error, now_ms):
            case Synced(end_index, log_generation):
                if not self._durable_at_append:
                    self._call(now_ms, self.member.synced, end_index, log_generation)
            case HardStateSaved(sequence):
                self._call(now_ms, self.member.hard_state_saved, sequence)
            case CutDone():
                self._call(now_ms, self.member.cut_done)
            case SpaceProbed(has_space):
                self._log_space(has_space, "a probe")
                self._call(now_ms, self.member.write_failed_no_space, not has_space)
            case Failed(reason):
                self._fail(reason, now_ms)
                self._drain()
            case None:
                pass

    def peer_seen(
        self,
        peer: PeerId,
        disk_uuid: bytes,
        group: GroupIdentity | None,
        now_ms: int,
        *,
        begin_pos: int,
        wire_version: int = WIRE_VERSION_MAX,
    ) -> bool:
        """What a peer proved to be, before peer_connected(), and the version that both speak.

        Whether this member has been formed just now: then peers that know it as unformed are to be told soon, by
        shaking hands anew.

        Raises HandshakeRefusedError if what the peer says cannot be.
        """
        if self._formation is None:
            if group is not None and group != self.group_identity:
                raise HandshakeRefusedError(f"{peer!r} was formed into another group meanwhile")
            self._call(now_ms, self.member.peer_shown, peer, disk_uuid, wire_version)
            return False
        try:
            if not self._form(self._formation.peer_seen(peer, disk_uuid, group, begin_pos=begin_pos)):
                return False
        except DiskError as error:
            self._fail(f"the group's identity could not be stored: {error}", now_ms)
            self._drain()
            return False
        # Unformed it has heard and said nothing, so there is nothing to keep.
        self.member = self._make_member(now_ms)
        return True

    def peer_connected(self, peer: PeerId, now_ms: int, *, repairs: bool = True) -> None:
        """The connection is up by which we ask it. `repairs`: it can be asked for entries that are damaged here."""
        if self.failure is None:
            if repairs:
                self.repairer.peer_connected(peer)
            self._call(now_ms, self.member.peer_connected, peer)

    def peer_disconnected(self, peer: PeerId, now_ms: int) -> None:
        """The connection is closed by which we ask it, or the one by which it asks us."""
        if self.failure is None:
            self.repairer.peer_disconnected(peer)
            if self._formation is not None:
                self._formation.peer_lost(peer)
            self._call(now_ms, self.member.peer_disconnected, peer)

    def transfer_leadership(self, target: PeerId | None, reason: str, now_ms: int) -> TransferRefusal | None:
        """To `target`, or without one to the member that lacks least. None: it is under way, until
        `transfer_target` is None again; whether it has succeeded shows in who leads then.
        """
        member = self.member
        refusal = member.check_transfer(target)
        if refusal is None:
            self._call(now_ms, member.transfer_leadership, target or member.most_caught_up(), reason)
        return refusal

    @property
    def transfer_target(self) -> PeerId | None:
        return self.member.transfer_target

    def leave(self, now_ms: int) -> None:
        """Before stop(), while peers are connected: hands leadership over if it is here, and asks for none any more."""
        if self.failure is None:
            self._call(now_ms, self.member.leave)

    def stop(self, now_ms: int) -> None:
        """Pending appends end as UNKNOWN; what was appended is being synced until `idle`."""
        if self.failure is None:
            self.scrubber.stop()
            self._call(now_ms, self.member.stop)
            self._work.start_sync()

    @property
    def idle(self) -> bool:
        return self._work.idle and self.scrubber.idle and self.repairer.idle

    def close(self, *, clean: bool) -> None:
        """Blocks. After stop() and when idle it may be `clean`; else the files are left as a crash leaves
        them.
        """
        self.log.close(clean=clean)
        if clean:
            try:
                curr_term_job(
                    self.log.disk, self.config.directory, self._quorum_state.hard_state.curr_term
                ).run()
            except NoSpaceError as error:
                log.warning("currterm not exported directory=%s error=%s", self.config.directory, error)
            end_run(self._quorum_state)
        self._quorum_state.close()

    # -- appending -------------------------------------------------------------------------------------------

    def check_append(self, size: int, count: int) -> AppendRefusal | None:
        """Whether `count` entries of `size` bytes together, headers included, may be appended now."""
        return self.member.check_append(size, count)

    def reserve(self, body_sizes: Sequence[int]) -> list[Pos]:
        """Positions of the next entries, if they are the next to be appended."""
        return self.log.reserve(body_sizes)

    def append(
        self,
        bodies: Sequence[bytes],
        positions: Sequence[Pos],
        kind: EntryKind,
        on_done: OnDone | None,
        now_ms: int,
        *,
        head_kind: EntryKind | None = None,
    ) -> Batch:
        """After check_append() and reserve(). `on_done` is called once, after this has returned. `head_kind`: of the
        first entry, where it differs from that of the others.

        Raises NoSpaceError (the log is unchanged, and refuses for a while), DiskError and LedgerError (the member
        stops).
        """
        try:
            batch = self.log.append(bodies, positions, self.member.curr_term, kind, head_kind)
            self._carry_out(self.member.append(batch, on_done, now_ms), now_ms)
            self._work.appended()
            if self._durable_at_append:
                self._carry_out(self._durable_now(now_ms), now_ms)
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
            if self._later and not self._draining:
                self._runtime.call_soon(self._drain)
        return batch

    @property
    def membership(self) -> Membership:
        return self.member.membership

    @property
    def membership_index(self) -> Index:
        return self.member.membership_index

    @property
    def watermarks(self) -> Mapping[PeerId, Index]:
        """Of the voters, as acknowledged to this leader; empty at a follower."""
        return self.member.peer_watermarks_by_term.get(self.member.curr_term, {})

    def add_member(self, peer: PeerId, address: str, on_done: OnDone, now_ms: int) -> AppendRefusal | None:
        """A learner, which becomes a voter by itself as soon as it can. `on_done` is called once it is one, or that is
        unknown; never when this returns a refusal.
        """
        return self._change_members(self.member.changes.add(peer, address), on_done, now_ms)

    def remove_member(self, peer: PeerId, on_done: OnDone, now_ms: int) -> AppendRefusal | None:
        return self._change_members(self.member.changes.remove(peer), on_done, now_ms)

    def _change_members(
        self, wanted: Membership | AppendRefusal, on_done: OnDone, now_ms: int
    ) -> AppendRefusal | None:
        if isinstance(wanted, AppendRefusal):
            return wanted
        if (fault := self._size_fault(wanted)) is not None:
            return AppendRefusal(RefusalReason.MEMBERS_TOO_LARGE, fault)
        index = self.log.ledger_end_index
        self._append_membership(wanted, on_done, now_ms)
        if self.log.ledger_end_index == index:
            return AppendRefusal(RefusalReason.DISK_FULL, f"the log of {self.config.self_id} takes no entry")
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
            self._drain()
            return False

    def set_low_space(self, reason: str | None) -> None:
        """Why the embedder takes no more messages for want of space; None when it does. Refuses nothing here."""
        self.member.set_low_space(reason)

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, request: GetRequest) -> tuple[GetResponse, list[bytes]]:
        """Committed entries as they lie in the log, at least one if there is one."""
        committed_index = self.member.committed_index
        begin = request.begin_index
        last, pos, chain = Index(begin - 1), Pos(0), 0
        buffers: list[bytes] = []
        code = ResponseCode.SUCCESS
        if begin < self.log.ledger_begin_index:
            code = ResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN
        elif begin > committed_index + 1:
            code = ResponseCode.INDEX_OUT_OF_RANGE
        elif begin <= committed_index:
            size_max = min(request.size_max, self.config.member_config.push_size_max)
            try:
                entries = self.log.range_from(begin, size_max)
                assert entries is not None, "committed entries are in the log"
                if entries.last_index > committed_index:
                    end_pos = self.log.pos_at(Index(committed_index + 1))
                    entries = replace(entries, last_index=committed_index, size=end_pos - entries.pos)
                chain = self.log.chain_at(Index(begin - 1)) or 0
                buffers = self.log.read_range(entries)
                last, pos = entries.last_index, entries.pos
            except FaultyEntryError:
                code = ResponseCode.DISK_ERROR
        return GetResponse(request.request_id, code, begin, last, pos, chain, committed_index), buffers

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        member = self.member
        return MetadataResponse(
            request_id=request.request_id,
            code=ResponseCode.SUCCESS,
            group=self.config.group,
            member_id=self.config.self_id,
            leader_id=member.leader_id,
            term=member.curr_term,
            ledger_begin_index=self.log.ledger_begin_index,
            ledger_end_index=self.log.ledger_end_index,
            committed_index=member.committed_index,
            peers={peer: str(address) for peer, address in self.addresses.items()},
        )

    # -- scrub -----------------------------------------------------------------------------------------------

    def _scrubbed(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        try:
            failure = self.scrubber.job_done(job, error, now_ms)
        except (DiskError, LedgerError) as caught:
            failure = f"scrub: {caught}"
        if failure is not None:
            self._fail(failure, now_ms)
            self._drain()

    # -- identity ------------------------------------------------------------------------------------------

    @property
    def group_identity(self) -> GroupIdentity | None:
        """None as long as the group is not formed: then this member neither votes nor follows."""
        identity = self.identity
        if identity.group_uuid is None:
            return None
        return GroupIdentity(identity.group_uuid, identity.pairs)

    def logged_membership(self) -> Membership:
        """Read from the log. Raises LedgerDamagedError, DiskError."""
        return self._log_members().membership()

    @property
    def addresses(self) -> dict[PeerId, PeerAddress]:
        """Of all members that are to be spoken with: what the conf says of one comes before what the log says. Those of
        the conf alone count until the group is formed.
        """
        if self._formation is not None:
            return dict(self.config.peers)
        value = self.member.membership
        seats = {**value.learners, **value.voters}
        return {
            peer: self.config.peers.get(peer) or parse_address(seat.address)
            for peer, seat in sorted(seats.items())
            if peer in self.config.peers or seat.address
        }

    @property
    def waits_for(self) -> list[PeerId]:
        """Peers that are to be seen before the group can be formed."""
        return self._formation.missing if self._formation is not None else []

    @property
    def begin_pos(self) -> int:
        """Of the first entry in the log, -1 if there never was one: as peers are told."""
        return self.log.ledger_begin_pos if self.log.ledger_end_index >= 0 else -1

    def _form(self, formed: Formed | None) -> bool:
        if formed is None:
            return False
        self.identity = store_formed(self._quorum_state, formed)
        self._formation = None
        uuid = formed.group.group_uuid.hex()
        log.info("[%s] group formed uuid=%s", self.config.self_id, uuid)
        if formed.doubted:
            log.warning(
                "[%s] doubted from here on, its vote alone makes no majority reason=its disk is not the one that the "
                "group was formed with, or is empty where others have a log",
                self.config.self_id,
            )
        return True

    def _make_member(self, now_ms: int) -> Member:
        self.journal.hard_state_changed(self._quorum_state.hard_state)
        return Member(
            self.config.member_config,
            self.log,
            self._quorum_state.hard_state,
            self._random,
            now_ms,
            durable_index=self.log.durable_index,
            can_vote=self._formation is None,
            members=self._current_members(),
        )

    def _current_members(self) -> CurrentMembers:
        return CurrentMembers(self.config.self_id, self.identity.disk_uuid, self._log_members())

    def _log_members(self) -> LogMembers:
        return LogMembers(self.log, self.group_identity, self.config.peers, self._embedder.membership_payload)

    # -- carrying out ----------------------------------------------------------------------------------------

    def _call(self, now_ms: int, ask_core: Callable[..., Output], *arguments: object) -> None:
        """A call of the core from outside, with all that follows from it."""
        try:
            self._carry_out(ask_core(*arguments, now_ms), now_ms)
        except (DiskError, LedgerError, FaultyEntryError) as error:
            # The log cannot be read or written. What was to follow from this call is lost, so the member ends.
            self._fail(f"log failed: {error}", now_ms)
        except Exception as error:
            self._defect(error, now_ms)
            raise
        if self._later:
            self._drain()

    def _defect(self, error: Exception, now_ms: int) -> None:
        """What nobody expected was raised with an Output half carried out: a member that went on would say what it
        has not done. The stack is for whoever catches it.
        """
        self._fail(f"a defect of this program: {type(error).__name__}: {error}", now_ms)
        self._runtime.call_soon(self._drain)

    def _carry_out(self, output: Output, now_ms: int) -> None:
        if output is NOTHING:
            return
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
        later = self._later
        if output.committed_index is not None:
            committed_index = output.committed_index
            later.append(lambda: self._embedder.committed(committed_index))
        for completion in output.completions:
            self._complete(completion)
        if output.role_change is not None:
            change = output.role_change
            self.journal.role_changed(change)
            later.append(lambda: self._embedder.role_changed(change))
        if output.transfer_change is not None:
            self.journal.transfer_changed(output.transfer_change)
        if (wanted := output.membership_wanted) is not None:
            later.append(lambda: self._append_membership(wanted, None, now_ms))
        if output.no_op_wanted:
            later.append(lambda: self._append_no_op(now_ms))
        if output.probe_wanted:
            self._work.probe_space(now_ms)
        if output.fatal is not None:
            self._fail(output.fatal, now_ms)
            return
        # Calls of the core again, now that this Output is carried out.
        if appended:
            self._work.appended()
            if self._durable_at_append:
                self._carry_out(self._durable_now(now_ms), now_ms)
        if no_space is not None:
            self._no_space(no_space, now_ms)

    def _begin_cut(self, cut: Cut | BeginAnew) -> None:
        self.journal.cut_begins(cut, self.log.ledger_begin_index, self.log.ledger_end_index)
        self._work.begin_cut(cut)
        if isinstance(cut, Cut):
            self._later.append(partial(self._embedder.log_cut, cut.from_index))
        else:
            self._later.append(partial(self._embedder.log_began_anew, cut.before_begin_index))

    def _drain(self) -> None:
        """Calls out, also for what those calls bring about. An embedder's error is its own: it ends in the
        shell.
        """
        if self._draining:
            return
        self._draining = True
        try:
            while self._later:
                self._later.popleft()()
        finally:
            self._draining = False

    def _complete(self, completion: Completion) -> None:
        self._later.append(partial(cast(OnDone, completion.closure), completion.status))

    def _durable_now(self, now_ms: int) -> Output:
        return self.member.synced(self.log.ledger_end_index, self.log.log_generation, now_ms)

    def _send(self, to: PeerId, message: Message) -> None:
        buffers: Sequence[bytes] = ()
        if type(message) is PushRequest and message.entries is not None:
            try:
                buffers = self.log.read_range(message.entries)
            except FaultyEntryError as error:
                log.warning("%s push left out peer=%s reason=%s", self, to, error)
                return  # as if it were lost on its way: the dispatcher compares again
        elif type(message) is VoteResponse:
            self.journal.vote_said(to, message)
        self._runtime.send(to, message, buffers)

    def _drop(self, peer: PeerId, reason: str) -> None:
        log.error("%s push refused peer=%s reason=%s", self, peer, reason)
        self._runtime.drop_connection(peer, reason)

    def _append_no_op(self, now_ms: int) -> None:
        """The own-term no-op, unless this member has ceased to lead."""
        member = self.member
        if self.failure is not None or member.role is not Role.LEADER:
            return
        entry = self._embedder.no_op(member.curr_term)
        (pos,) = self.log.reserve([entry.size])
        # When it fails, append() has told the core, which asks again as soon as there is space.
        with suppress(DiskError, LedgerError):
            self.append([entry.encode(pos, now_ms)], [pos], EntryKind.NO_OP, None, now_ms)

    def _append_membership(self, membership: Membership, on_done: OnDone | None, now_ms: int) -> None:
        if self.failure is not None or self.member.changes.refusal() is not None:
            return
        if (fault := self._size_fault(membership)) is not None:
            self.journal.change_impossible(fault)
            return
        entry = self._embedder.membership_entry(pack_membership(membership))
        (pos,) = self.log.reserve([entry.size])
        # The core wants a change again that it made itself; for one that was asked for, on_done is not called.
        with suppress(DiskError, LedgerError):
            self.append([entry.encode(pos, now_ms)], [pos], EntryKind.MEMBERSHIP, on_done, now_ms)

    def _size_fault(self, membership: Membership) -> str | None:
        """Why the members do not fit into an entry, by the time that all their disks are known."""
        payload = pack_membership(membership.with_all_disks(bytes(DISK_UUID_SIZE)))
        size = self._embedder.membership_entry(payload).size
        if size <= MEMBERSHIP_SIZE_MAX:
            return None
        return (
            f"the entry that names {len(membership.members)} members would have {size} bytes, allowed are "
            f"{MEMBERSHIP_SIZE_MAX}: remove a member first, or take shorter ids and addresses"
        )

    def _no_space(self, error: NoSpaceError, now_ms: int) -> None:
        self._log_space(False, error)
        self._work.no_space(now_ms)
        self._carry_out(self.member.write_failed_no_space(True, now_ms), now_ms)

    def _log_space(self, has_space: bool, cause: object) -> None:
        """Only changes: it is looked for again and again."""
        if has_space and self._is_full:
            log.info("%s space on the disk again, writes are taken", self)
        elif not has_space and not self._is_full:
            log.error("%s no space on the disk, writes are refused cause=%s", self, cause)
        self._is_full = not has_space

    def _fail(self, reason: str, now_ms: int) -> None:
        """Ends this member. Of what the core still has to say only the ends of pending appends are heard."""
        if self.failure is not None:
            return
        self.failure = reason
        log.critical("%s stopping reason=%s", self, reason)
        for completion in self.member.stop(now_ms).completions:
            self._complete(completion)
        self._later.append(lambda: self._runtime.failed(reason))

    def __str__(self) -> str:
        """The prefix of log lines."""
        return f"[{self.config.self_id}][{self.member.role.value}][term={self.member.curr_term}]"
