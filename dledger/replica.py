"""One replica of the log: the pure core, the log store and what lies between; no sockets, threads or clock.

What happens to a member comes in here: ticks, messages, finished jobs, connections, appends, what operators ask for.
What peers push is verified first. The core says what is to be done about it, and core_driver.py carries it out; when
disk work is due is disk_work.py's. The server runs a replica on an event loop, the simulator in virtual time: same
calls, same results.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from functools import partial
from random import Random

from msgspec.structs import replace

from disk.disk import DiskError, NoSpaceError
from dledger.config import Address, DLedgerConfig, parse_address
from dledger.core.member import Member
from dledger.core.membership import CurrentMembers, Membership
from dledger.core.messages import LedgerBegin, Message, PeerId, PushRequest, VoteResponse
from dledger.core.output import Batch, Role
from dledger.core.refusal import Refusal, RefusalReason
from dledger.core_driver import CoreDriver
from dledger.disk_work import CutDone, DiskWork, Failed, HardStateSaved, SpaceProbed, Synced
from dledger.entry import EntryKind, Index, Pos
from dledger.formation import GroupIdentity
from dledger.group_formation import GroupFormation
from dledger.log.errors import LedgerError
from dledger.log.faulty_ranges import FaultyRange
from dledger.log.java_files import curr_term_job
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.log_members import LogMembers, membership_size_fault
from dledger.member_journal import MemberJournal
from dledger.pushed_entries import PushNotSoundError, verify_pushed
from dledger.repair_answers import answer_repair
from dledger.repairer import Repairer
from dledger.rpc.handshake import DISK_UUID_SIZE, WIRE_VERSION_MAX
from dledger.rpc.requests import (
    RepairMessage,
    RepairResponse,
)
from dledger.run_record import end_run
from dledger.runtime import Embedder, OnDone, OnReadIndex, Runtime
from dledger.scrub_walks import scrubber_of

log = logging.getLogger(__name__)


class Replica:
    """Invariant: after a failure no event has any effect."""

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
        self.applied_index = Index(-1)  # kept by the embedder
        self._quorum_state = quorum_state
        self._embedder = embedder
        self._runtime = runtime
        self._random = random
        self._work = DiskWork(config, log_store, quorum_state, runtime.submit, now_ms)
        self.scrubber = scrubber_of(config, log_store, quorum_state, runtime.submit, now_ms)
        self.repairer = Repairer(
            config,
            log_store,
            lambda peer, request: runtime.send(peer, request, ()),
            runtime.submit,
            self._begin_at,
            self._cut_at,
            self._nobody_has,
            lambda: max(self.member.committed_index, self.applied_index),
            lambda: (self.member.curr_term, self.member.leader_id),
        )
        self.journal = MemberJournal(config.self_id, quorum_state.hard_state)
        disk_uuid = random.randbytes(DISK_UUID_SIZE)
        self.formation = GroupFormation(config, quorum_state, log_store, disk_uuid, boot_id)
        member = self._make_member(now_ms)
        self._driver = CoreDriver(config, member, log_store, self._work, embedder, runtime, self.journal)

    @property
    def member(self) -> Member:
        return self._driver.member

    @property
    def failure(self) -> str | None:
        """Why this member has ended by itself."""
        return self._driver.failure

    # -- events ----------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Every `config.tick_interval_ms`."""
        if self.failure is not None:
            return
        self._driver.call(now_ms, self.member.tick)
        self.journal.members_are(self.member.membership, self.member.membership_index)
        self._guarded(now_ms, self._work.tick, self.member.committed_index, now_ms)
        self.scrubber.tick(now_ms)
        self._guarded(now_ms, self.repairer.tick, now_ms)

    def receive(self, message: Message, now_ms: int, payload: bytes = b"") -> None:
        """`payload`: the raw entry bytes of an APPEND. A range that is not sound goes no further."""
        if self.failure is not None or not self.formation.is_formed:
            return
        if type(message) is PushRequest and message.entries is not None:
            try:
                verified = verify_pushed(message, payload)
            except PushNotSoundError as error:
                self._driver.drop(message.leader_id, str(error))
                return
            message = replace(message, payload=verified)
        elif type(message) is VoteResponse:
            self.journal.vote_heard(message)
        self._driver.call(now_ms, self.member.step, message)

    def receive_repair(self, message: RepairMessage, now_ms: int, entries: bytes = b"") -> None:
        """`entries`: raw bytes of an answer, which are proved before they are used."""
        if self.failure is not None:
            return
        if isinstance(message, RepairResponse):
            self._guarded(now_ms, self.repairer.on_response, message, entries, now_ms)
            return

        def answer() -> None:
            size_max = self.config.member_config.push_size_max
            response, buffers = answer_repair(self.log, self.config.self_id, message, size_max)
            self._runtime.send(message.member_id, response, buffers)

        self._guarded(now_ms, answer)

    def _guarded(self, now_ms: int, step: Callable[..., None], *arguments: object) -> None:
        if self.failure is not None:
            return
        try:
            step(*arguments)
        except (DiskError, LedgerError) as error:
            self._driver.fail(f"log failed: {error}", now_ms)
        if self._driver.later:
            self._driver.drain()

    def job_done(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        if self.failure is not None:
            return
        if self.scrubber.is_own(job):
            self._scrubbed(job, error, now_ms)
            return
        if self.repairer.owns(job) and (error is None or isinstance(error, NoSpaceError)):
            self.repairer.job_done(error, now_ms)
            return
        match self._work.settle(job, error, now_ms):
            case Synced():
                self._driver.synced(now_ms)
            case HardStateSaved(sequence):
                self._driver.call(now_ms, self.member.hard_state_saved, sequence)
            case CutDone():
                self._driver.call(now_ms, self.member.cut_done)
            case SpaceProbed(has_space):
                self.journal.space_changed(has_space, "a probe")
                self._driver.call(now_ms, self.member.write_failed_no_space, not has_space)
            case Failed(reason):
                self._driver.fail(reason, now_ms)
                self._driver.drain()
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
        peers: Collection[PeerId] = (),
        wire_version: int = WIRE_VERSION_MAX,
    ) -> bool:
        """What a peer proved to be, before peer_connected(), and the version that both speak.

        Whether this member has been formed just now: then peers that know it as unformed are to be told soon, by
        shaking hands anew.

        Raises HandshakeRefusedError if what the peer says cannot be.
        """
        was_formed = self.formation.is_formed
        try:
            is_formed_now = self.formation.peer_seen(peer, disk_uuid, group, begin_pos=begin_pos, peers=peers)
        except DiskError as error:
            self._driver.fail(f"the group's identity could not be stored: {error}", now_ms)
            self._driver.drain()
            return False
        if was_formed:
            self._driver.call(now_ms, self.member.peer_shown, peer, disk_uuid, wire_version)
        if not is_formed_now:
            return False
        # Unformed it has heard and said nothing, so there is nothing to keep. One without a quorum state has stored the
        # term of its last entry, or was about to: that is on disk with the group.
        self._work.hard_state_stored()
        self._driver.member = self._make_member(now_ms)
        return True

    def peer_connected(self, peer: PeerId, now_ms: int, *, repairs: bool = True) -> None:
        """The connection is up by which we ask it. `repairs`: it can be asked for entries that are damaged here."""
        if self.failure is None:
            if repairs:
                self.repairer.peer_connected(peer)
            self._driver.call(now_ms, self.member.peer_connected, peer)

    def peer_disconnected(self, peer: PeerId, now_ms: int) -> None:
        """The connection is closed by which we ask it, or the one by which it asks us."""
        if self.failure is None:
            self.repairer.peer_disconnected(peer)
            self.formation.peer_lost(peer)
            self._driver.call(now_ms, self.member.peer_disconnected, peer)

    def transfer_leadership(self, target: PeerId | None, reason: str, now_ms: int) -> Refusal | None:
        """To `target`, or without one to the member that lacks least. None: it is under way, until
        `transfer_target` is None again; whether it has succeeded shows in who leads then.
        """
        member = self.member
        refusal = member.check_transfer(target)
        if refusal is None:
            self._driver.call(now_ms, member.transfer_leadership, target or member.most_caught_up(), reason)
        return refusal

    @property
    def transfer_target(self) -> PeerId | None:
        return self.member.transfer_target

    def leave(self, now_ms: int) -> None:
        """Before stop(), while peers are connected: hands leadership over if it is here, and asks for none any more."""
        if self.failure is None:
            self._driver.call(now_ms, self.member.leave)

    def stop(self, now_ms: int) -> None:
        """Pending appends end as UNKNOWN; what was appended is being synced until `idle`."""
        if self.failure is None:
            self.scrubber.stop()
            self._driver.call(now_ms, self.member.stop)
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
                self._end_run()
        except NoSpaceError as error:
            self._warn_not_ended(str(error))
        finally:
            self._quorum_state.close()

    def _end_run(self) -> None:
        """Raises NoSpaceError."""
        try:
            curr_term_job(self.log.disk, self.config.directory, self._quorum_state.hard_state.curr_term).run()
        except NoSpaceError as error:
            log.warning("currterm not exported directory=%s error=%s", self.config.directory, error)
        if self.log.is_marked:
            end_run(self._quorum_state)
        else:
            self._warn_not_ended("no space for the synced mark")

    def _warn_not_ended(self, why: str) -> None:
        text = "the next start takes this one for killed directory=%s error=%s"
        log.warning(text, self.config.directory, why)

    # -- appending -------------------------------------------------------------------------------------------

    @property
    def wait_ack_ms_max(self) -> int:
        """After so long an append that no majority holds ends as unknown."""
        return self.config.member_config.wait_ack_ms_max

    def check_append(self, size: int, count: int) -> Refusal | None:
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
        return self._driver.append(bodies, positions, kind, on_done, now_ms, head_kind)

    @property
    def membership(self) -> Membership:
        return self.member.membership

    @property
    def membership_index(self) -> Index:
        return self.member.membership_index

    @property
    def is_membership_committed(self) -> bool:
        return self.member.is_membership_committed

    @property
    def watermarks(self) -> Mapping[PeerId, Index]:
        """Of the voters, as acknowledged to this leader; empty at a follower."""
        return self.member.peer_watermarks_by_term.get(self.member.curr_term, {})

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
        self._driver.append_membership(wanted, on_done, now_ms)
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
            self._driver.fail(f"log failed: {error}", now_ms)
            self._driver.drain()
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
            self._driver.later.append(partial(self._embedder.log_began_anew, before_index))
            self._driver.later.append(partial(self._embedder.committed, committed_index))
        return True

    def _cut_at(self, from_index: Index, now_ms: int) -> None:
        """Damage begins there, and the leader's history is another in it, or behind it."""
        leader_id = self.member.leader_id
        if leader_id is not None and from_index > self.applied_index:
            self._driver.call(now_ms, self.member.cut_damaged, from_index, leader_id)

    def _nobody_has(self, faulty: FaultyRange, now_ms: int) -> None:
        """No peer that is connected."""
        self._driver.call(now_ms, self.member.nobody_has, faulty.first_index, faulty.last_index)

    def set_low_space(self, reason: str | None) -> None:
        """Why the embedder takes no more messages for want of space; None when it does. Refuses nothing here."""
        self.member.set_low_space(reason)

    # -- reading ---------------------------------------------------------------------------------------------

    def read_index(self, on_done: OnReadIndex, now_ms: int) -> None:
        """How far the embedder must have applied for a read that begins now, so as not to be stale; or why nobody can
        tell, which is definite. `on_done` is called once, within this call if it can be said at once.
        """
        self._driver.call(now_ms, self.member.read_index, on_done)

    # -- scrub -----------------------------------------------------------------------------------------------

    def _scrubbed(self, job: DiskJob, error: Exception | None, now_ms: int) -> None:
        try:
            failure = self.scrubber.job_done(job, error, now_ms)
        except (DiskError, LedgerError) as caught:
            failure = f"scrub: {caught}"
        if failure is not None:
            self._driver.fail(failure, now_ms)
            self._driver.drain()

    # -- who the members are ---------------------------------------------------------------------------------

    def logged_membership(self) -> Membership:
        """Read from the log. Raises LedgerDamagedError, DiskError."""
        return self._log_members().membership()

    @property
    def addresses(self) -> dict[PeerId, Address]:
        """Of all members that are to be spoken with: what the conf says of one comes before what the log says. Those of
        the conf alone count until the group is formed.
        """
        if not self.formation.is_formed:
            return dict(self.config.peers)
        value = self.member.membership
        seats = {**self.member.leaving_voters, **value.learners, **value.voters}
        return {
            peer: self.config.peers.get(peer) or parse_address(seat.address)
            for peer, seat in sorted(seats.items())
            if peer in self.config.peers or seat.address
        }

    def _make_member(self, now_ms: int) -> Member:
        self.journal.hard_state_changed(self._quorum_state.hard_state)
        return Member(
            self.config.member_config,
            self.log,
            self._quorum_state.hard_state,
            self._random,
            now_ms,
            durable_index=self.log.durable_index,
            can_vote=self.formation.is_formed,
            members=self._current_members(),
        )

    def _current_members(self) -> CurrentMembers:
        self_id, identity = self.config.self_id, self.formation.identity
        formed_alone = identity.pairs == ((self_id, identity.disk_uuid),)
        return CurrentMembers(self_id, identity.disk_uuid, self._log_members(), formed_alone=formed_alone)

    def _log_members(self) -> LogMembers:
        return LogMembers(
            self.log, self.formation.group, self.config.peers, self._embedder.membership_payload
        )

    def __str__(self) -> str:
        """The prefix of log lines."""
        return str(self._driver)
