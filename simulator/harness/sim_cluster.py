"""One run: a group of simulated members, first under faults, then healed, with every step looked at."""

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from dledger.core.messages import Message, PeerId
from dledger.core.output import Role
from dledger.entry import Index
from dledger.errors import FaultyEntryError
from dledger.log.faulty_ranges import FaultyRange
from dledger.rpc.requests import RepairMessage
from simulator.faults.clock_faults import ClockFaults
from simulator.faults.damage_faults import DamageFaults
from simulator.faults.delivery_accidents import DeliveryAccidents
from simulator.faults.disk_faults import DiskFaults
from simulator.faults.disk_trial import DiskTrial
from simulator.faults.election_accidents import ElectionAccidents
from simulator.faults.faults import Faults
from simulator.faults.hand_overs import HandOvers
from simulator.faults.leader_cuts import LeaderCuts
from simulator.faults.lost_writes import LostWrites
from simulator.faults.may_be_damaged import read_mark
from simulator.faults.membership_faults import MembershipFaults
from simulator.faults.missing_file_faults import MissingFiles
from simulator.faults.quorum_state_faults import QuorumStateFaults
from simulator.faults.recovery_crashes import RecoveryCrashes
from simulator.faults.synced_mark_faults import SyncedMarkFaults
from simulator.harness.access_log import AccessLog
from simulator.harness.convergence import Convergence
from simulator.harness.life_view import LifeView
from simulator.harness.options import Options
from simulator.harness.oracle import Oracle
from simulator.harness.trace import Trace
from simulator.invariants.acknowledged_is_kept import AcknowledgedIsKept
from simulator.invariants.begin_is_committed import BeginIsCommitted
from simulator.invariants.commit_by_voters import CommitByVoters
from simulator.invariants.commit_within_end import CommitWithinEnd
from simulator.invariants.damaged_wait import DamagedWait
from simulator.invariants.durable_is_kept import DurableIsKept
from simulator.invariants.durable_is_on_disk import DurableIsOnDisk
from simulator.invariants.election_safety import ElectionSafety
from simulator.invariants.hand_over_is_whole import HandOverIsWhole
from simulator.invariants.invariant import Invariant, ViolationError, has_found_begin
from simulator.invariants.kinds.access_by_log import AccessByLog
from simulator.invariants.kinds.delayed_once import DelayedOnce
from simulator.invariants.kinds.no_timer_early import NoTimerEarly
from simulator.invariants.kinds.timer_once import TimerOnce
from simulator.invariants.kinds.transaction_once import TransactionOnce
from simulator.invariants.leader_completeness import LeaderCompleteness
from simulator.invariants.log_matching import LogMatching
from simulator.invariants.members_by_log import MembersByLog
from simulator.invariants.one_change_at_a_time import OneChangeAtATime
from simulator.invariants.queue_offsets_dense import QueueOffsetsDense
from simulator.invariants.read_is_fresh import ReadIsFresh
from simulator.invariants.repaired_is_as_it_was import RepairedIsAsItWas
from simulator.invariants.scrub_finds_damage import ScrubFindsDamage
from simulator.invariants.state_machine_safety import StateMachineSafety
from simulator.invariants.visible_is_committed import VisibleIsCommitted
from simulator.world.access_changes import AccessChanges
from simulator.world.event_loop import EventLoop
from simulator.world.pops import Pops
from simulator.world.process import Process
from simulator.world.read_index_reads import ReadIndexReads
from simulator.world.sim_member import SimMember
from simulator.world.sim_network import SimNetwork
from simulator.world.timers import Timers
from simulator.world.transactions import Transactions
from simulator.world.workload import Workload

_LEAD_SAMPLE_MS = 1_000


@dataclass(slots=True)
class Counts:
    """What a run was worth."""

    elections: int = 0
    truncations: int = 0  # cuts of entries at the end of a log
    lives: int = 0
    entries: int = 0  # committed
    full_states: int = 0
    files_deleted: int = 0  # data files
    repaired: int = 0  # ranges of damaged entries
    begun_behind: int = 0  # those that nobody had any more
    transfers: int = 0  # logs that began anew where their leader's does
    scrub_rounds: int = 0  # complete ones
    hand_overs: int = 0  # transfers of leadership that were begun
    taken_over: int = 0  # those after which the target led
    faults: Counter[str] = field(default_factory=Counter)
    crashes_with_loss: int = 0
    bytes_lost: int = 0
    acknowledged: int = 0  # messages
    unknown: int = 0
    refused: int = 0
    read: int = 0
    found_by_key: int = 0
    read_index_reads: int = 0  # that were to miss nothing acknowledged, and were answered
    follower_reads: int = 0  # those of them that no leader was asked for
    refused_reads: int = 0
    delivered: int = 0  # delayed messages
    transactions_ended: int = 0
    popped: int = 0  # messages
    popped_acknowledged: int = 0
    revived: int = 0  # that came again
    dead: int = 0
    access_changes: int = 0  # of users and policies, as administrators were told
    access_cut: int = 0  # such changes in the middle of which their leader fell
    fired: int = 0  # timer messages
    recalled: int = 0
    sent: int = 0  # messages between members
    lost: int = 0
    virtual_ms: int = 0
    led_ms: int = 0  # of these, when somebody led and served, looked at each second


@dataclass(slots=True)
class _Looked:
    """What the cluster knows of one life from its last step."""

    view: LifeView
    state: tuple[object, ...]
    leading_term: int
    voted_for: PeerId | None
    log_generation: int
    begin_pos: int
    scrub_rounds: int = 0
    transfer_target: PeerId | None = None
    delivery_index: Index | None = None
    faulty: tuple[FaultyRange, ...] = ()


class Cluster:
    """Invariant: after each step of a member every invariant was asked, unless nothing it looks at has changed."""

    def __init__(self, seed: int, options: Options, *, with_digest: bool = False) -> None:
        self.seed = seed
        self.options = options
        self.loop = EventLoop()
        self.trace = Trace(with_digest=with_digest)
        access_log = AccessLog()
        self.oracle = Oracle(access_log if options.access_interval_us else None)
        self._full_states: set[int] = set()  # applied indexes of the complete ones
        self.network = SimNetwork(
            self.loop, options, Random(f"{seed}/network"), Random(f"{seed}/repairs-spoiled")
        )
        self.network.on_send = self._trace_send
        ids = [f"n{number}" for number in range(options.member_count)]
        self.members = [
            SimMember(member_id, ids, seed, options, self.loop, self.network, self.trace, self)
            for member_id in ids
        ]
        self._gone: list[SimMember] = []  # hosts that others have replaced
        for member in self.members:
            self.network.add(member.member_id, member)
        self.transactions = Transactions(
            self.loop, self.members, self.oracle, options, Random(f"{seed}/ends-of-transactions")
        )
        self.workload = Workload(
            self.loop,
            self.members,
            self.oracle,
            options,
            Random(f"{seed}/workload"),
            Random(f"{seed}/delays"),
            Random(f"{seed}/queries"),
            Random(f"{seed}/sends"),
            self.transactions,
            Timers(options, Random(f"{seed}/timer-messages")),
        )
        self.pops = Pops(self.loop, self.members, self.oracle, options, Random(f"{seed}/pop-consumers"))
        self.access_changes = AccessChanges(
            self.loop, self.members, access_log, options, Random(f"{seed}/access-changes")
        )
        for member in self.members:
            member.on_start = self.transactions.join
        self.read_index_reads = ReadIndexReads(
            self.loop, self.members, self.oracle, options, Random(f"{seed}/fresh-reads")
        )
        self.faults = Faults(
            self.loop,
            self.members,
            self.network,
            options,
            Random(f"{seed}/faults"),
            Random(f"{seed}/absences"),
        )
        self.membership_faults = MembershipFaults(
            self.loop,
            self.members,
            options,
            Random(f"{seed}/membership"),
            Random(f"{seed}/newcomers"),
            self.faults,
            self._replace_host,
        )
        self.quorum_state_faults = QuorumStateFaults(
            self.loop, self.members, options, Random(f"{seed}/quorum-states"), self.faults
        )
        self.synced_mark_faults = SyncedMarkFaults(
            self.loop, self.members, options, Random(f"{seed}/synced-marks"), self.oracle, self.faults
        )
        self.missing_files = MissingFiles(
            self.loop, self.members, options, Random(f"{seed}/missing-files"), self.oracle, self.faults
        )
        self.lost_writes = LostWrites(
            self.loop, self.members, options, Random(f"{seed}/lost-writes"), self.oracle, self.faults
        )
        self.accidents = ElectionAccidents(
            self.loop,
            self.members,
            self.network,
            options,
            Random(f"{seed}/accidents"),
            self.faults,
            Random(f"{seed}/later-accidents"),
            Random(f"{seed}/begin-accidents"),
        )
        self._commit_by_voters = CommitByVoters()
        self.invariants: list[Invariant] = [
            ElectionSafety(),
            LogMatching(),
            LeaderCompleteness(),
            StateMachineSafety(),
            CommitWithinEnd(),
            AcknowledgedIsKept(),
            QueueOffsetsDense(),
            VisibleIsCommitted(),
            DelayedOnce(),
            TransactionOnce(),
            TimerOnce(),
            AccessByLog(),
            BeginIsCommitted(),
            HandOverIsWhole(),
            DurableIsOnDisk(),
            DurableIsKept(),
            NoTimerEarly(options.election_timeout_ms_min, self._clock_difference_ms()),
            OneChangeAtATime(),
            self._commit_by_voters,
            MembersByLog(),
            ReadIsFresh(),
            DamagedWait(self.members[0].config.member_config.last_resort_patience_ms),
            RepairedIsAsItWas(),
            ScrubFindsDamage(),
        ]
        self.clock_faults = ClockFaults(
            self.loop, self.members, self.network, options, Random(f"{seed}/clocks"), self.faults
        )
        self.disk_faults = DiskFaults(
            self.loop, self.members, options, Random(f"{seed}/disk-faults"), self.faults
        )
        self.damage_faults = DamageFaults(
            self.loop, self.members, options, Random(f"{seed}/damage"), self.oracle, self.faults
        )
        self.leader_cuts = LeaderCuts(
            self.loop, self.members, self.network, options, Random(f"{seed}/leader-cuts"), self.faults
        )
        self.recovery_crashes = RecoveryCrashes(options, Random(f"{seed}/recoveries"), self.faults)
        self.delivery_accidents = DeliveryAccidents(
            self.loop, self.network, options, Random(f"{seed}/delivery-accidents"), self.faults
        )
        self.hand_overs = HandOvers(self.members, options, Random(f"{seed}/hand-overs"), self.faults)
        self.counts = Counts()
        self._looked: dict[PeerId, _Looked] = {}

    def run(self) -> None:
        """Raises ViolationError, and whatever the code under test lets out."""
        for member in self.members:
            self.loop.call_later(0, member.start)
        self.workload.start()
        self.read_index_reads.start()
        self.pops.start()
        self.access_changes.start()
        self.faults.start()
        self.clock_faults.start()
        self.disk_faults.start()
        self.damage_faults.start()
        self.quorum_state_faults.start()
        self.synced_mark_faults.start()
        self.missing_files.start()
        self.lost_writes.start()
        self.membership_faults.start()
        self.hand_overs.start()
        self.leader_cuts.start()
        self.loop.call_later(_LEAD_SAMPLE_MS * 1_000, self._sample_lead)
        self.loop.run_until(self.options.fault_phase_ms * 1_000)
        self.workload.is_running = self.read_index_reads.is_running = self.transactions.is_running = False
        self.pops.is_running = self.access_changes.is_running = False
        self.faults.heal()
        self.membership_faults.heal()
        convergence = Convergence(
            self.loop, self.members, self.oracle, self.workload, self.transactions, self.pops, self.faults
        )
        convergence.run()
        if self.options.disk_trial and self.options.member_count > 1:
            DiskTrial(self.loop, self.members, self.workload, self.options, self.faults).run()
            convergence.run()

    def _sample_lead(self) -> None:
        if any(member.process is not None and member.process.store.serving for member in self.members):
            self.counts.led_ms += _LEAD_SAMPLE_MS
        self.loop.call_later(_LEAD_SAMPLE_MS * 1_000, self._sample_lead)

    def _replace_host(self, member: SimMember) -> SimMember:
        """By one with an id that the group never had, which does not run yet."""
        if member.process is not None:
            member.end_process()
        self.network.remove(member.member_id)
        self.faults.gone.add(member.member_id)
        self._gone.append(member)
        new_id = f"n{self.options.member_count + len(self._gone) - 1}"
        others = [other.member_id for other in self.members if other is not member]
        host = SimMember(
            new_id, [*others, new_id], self.seed, self.options, self.loop, self.network, self.trace, self
        )
        host.on_start = self.transactions.join
        self.members[self.members.index(member)] = host
        self.network.add(new_id, host)
        return host

    def _clock_difference_ms(self) -> int | None:
        """Between two well-kept clocks; None where hosts stand still and their clocks with them."""
        return None if self.options.stand_still_interval_ms else 2 * self.options.clock_skew_ms_max

    def summary(self) -> Counts:
        counts, outcomes, faults = self.counts, self.workload.outcomes, self.faults
        counts.repaired = counts.begun_behind = 0
        for member in (*self.members, *self._gone):
            counts.repaired += member.repaired_count
            counts.begun_behind += member.begun_behind_count
            if member.process is not None:
                counts.repaired += member.process.replica.repairer.repaired_count
                counts.begun_behind += member.process.replica.repairer.begun_behind_count
        counts.lives = sum(member.life for member in (*self.members, *self._gone))
        counts.entries = len(self.oracle.chains)
        counts.full_states = len(self._full_states)
        counts.faults = faults.happened
        counts.faults["repair_spoiled"] = self.network.spoiled
        counts.hand_overs, counts.taken_over = self.hand_overs.begun, self.hand_overs.taken_over
        counts.crashes_with_loss, counts.bytes_lost = faults.crashes_with_loss, faults.bytes_lost
        counts.acknowledged, counts.unknown = outcomes.acknowledged, outcomes.unknown
        counts.refused, counts.read = outcomes.refused, outcomes.read
        counts.found_by_key = outcomes.found_by_key
        counts.read_index_reads, counts.refused_reads = (
            self.read_index_reads.answered,
            self.read_index_reads.refused,
        )
        counts.follower_reads = self.read_index_reads.answered_by_followers
        counts.delivered = self.oracle.delivered_count
        counts.transactions_ended = self.transactions.ended_count
        counts.popped, counts.popped_acknowledged = self.pops.popped_count, self.pops.acked_count
        counts.revived = self.oracle.revived_count
        counts.dead = sum(uids.total() for uids in self.oracle.dead.values())
        counts.access_changes = self.access_changes.applied_count
        counts.access_cut = self.access_changes.cut_count
        counts.fired, counts.recalled = self.oracle.fired_count, len(self.oracle.recalls)
        counts.sent, counts.lost = self.network.sent, self.network.lost
        counts.virtual_ms = self.loop.now_us // 1_000
        return counts

    # -- Watcher of the members --------------------------------------------------------------------------------

    def stepped(self, member: SimMember) -> None:
        process = member.process
        assert process is not None, "a step is of a process"
        looked = self._looked.get(member.member_id)
        if looked is None or looked.view.life != process.life:
            looked = _Looked(
                LifeView(process),
                (),
                -1,
                process.replica.member.curr_vote_for,
                process.replica.log.log_generation,
                process.replica.log.ledger_begin_pos,
            )
            self._looked[member.member_id] = looked
            if has_found_begin(looked.view):
                member.has_forgotten_begin = False
        view = looked.view
        state = view.state()
        if state != looked.state:
            looked.state = state
            with member.disk.looked_at():
                self._count(member, process, looked)
                self._check(view)
            member.has_lost_tail, member.tail_lost_behind = (
                False,
                None,
            )  # what is lost from now on is another matter

    def failed(self, member: SimMember, reason: str) -> None:
        if not member.may_fail:
            raise ViolationError("no_member_fails", f"{member.member_id}: {reason}")
        self.faults.happened["member_failed"] += 1
        self.faults.restart_later(member)

    def no_space_to_start(self, member: SimMember) -> None:
        self.faults.happened["start_without_space"] += 1
        self.faults.restart_later(member)

    def starts(self, member: SimMember) -> None:
        if member.has_lost_tail:
            mark = read_mark(member, member.disk.content)
            member.tail_lost_behind = mark.index if mark is not None else Index(-1)
        self.recovery_crashes.starts(member)

    def falls(self, member: SimMember) -> None:
        """What it has acknowledged in this step is committed, and it alone may know that. It is not to be checked: the
        step is not over.
        """
        process, looked = member.process, self._looked.get(member.member_id)
        if process is not None and looked is not None and looked.view.life == process.life:
            with member.disk.looked_at():
                self._learn(looked.view)
                with suppress(FaultyEntryError):
                    self._commit_by_voters.note(looked.view)

    def crashed_at_point(self, member: SimMember, *, in_recovery: bool) -> None:
        self.faults.crash_point_reached(member, in_recovery=in_recovery)

    def _check(self, view: LifeView) -> None:
        self._learn(view)
        for invariant in self.invariants:
            try:
                fault = invariant.check(view, self.oracle)
            except FaultyEntryError:
                continue  # what it asks about is damaged there, and other members have it
            if fault is not None:
                raise ViolationError(invariant.name, fault)

    def _learn(self, view: LifeView) -> None:
        fault = self.oracle.learn(view)
        if fault is not None:
            raise ViolationError("state_machine_safety", f"{view.member_id}: {fault}")

    def _count(self, member: SimMember, process: Process, looked: _Looked) -> None:
        raft, log = process.replica.member, process.replica.log
        if raft.role is Role.LEADER and raft.curr_term != looked.leading_term:
            looked.leading_term = raft.curr_term
            self.counts.elections += 1
            self.trace.add(self.loop.now_us, "{} leads term {}", member.member_id, raft.curr_term)
            self.accidents.new_leader(member, raft.curr_term)
            self.hand_overs.new_leader(member.member_id, raft.curr_term)
        if raft.curr_vote_for not in (None, member.member_id, looked.voted_for):
            self.accidents.new_vote(member, raft.curr_term, raft.curr_vote_for)
        looked.voted_for = raft.curr_vote_for
        if raft.transfer_target not in (None, looked.transfer_target):
            self.hand_overs.begins(raft.curr_term, raft.transfer_target)
            self.trace.add(self.loop.now_us, "{} hands over to {}", member.member_id, raft.transfer_target)
        looked.transfer_target = raft.transfer_target
        if process.store.services.awaited_index not in (None, looked.delivery_index):
            self.delivery_accidents.delivers(member)
        looked.delivery_index = process.store.services.awaited_index
        has_cut = log.log_generation != looked.log_generation
        if has_cut:
            looked.log_generation = log.log_generation
            self.counts.truncations += 1
            self.trace.add(self.loop.now_us, "{} cut to {}", member.member_id, log.ledger_end_index)
            if any(faulty.first_index == log.ledger_end_index + 1 for faulty in looked.faulty):
                member.has_lost = True  # and it is doubted: nobody can tell what of it was acknowledged
                self.faults.happened["damage_cut"] += 1
        looked.faulty = log.faulty.ranges
        self.pops.fates.begin_index = max(self.pops.fates.begin_index, log.ledger_begin_index)
        if log.ledger_begin_pos != looked.begin_pos:
            moved_files = (log.ledger_begin_pos - looked.begin_pos) // self.options.data_file_size
            looked.begin_pos = log.ledger_begin_pos
            self.trace.add(self.loop.now_us, "{} begins with {}", member.member_id, log.ledger_begin_index)
            self.accidents.begin_moved(member)
            if has_cut and log.ledger_end_index < log.ledger_begin_index:
                self.counts.transfers += 1
            else:
                self.counts.files_deleted += moved_files
        self.counts.scrub_rounds += process.replica.scrubber.rounds - looked.scrub_rounds
        looked.scrub_rounds = process.replica.scrubber.rounds
        complete_index = process.store.reads.full_state_index
        if complete_index >= 0:
            self._full_states.add(complete_index)
        member.voters = tuple(raft.membership.voters) if process.replica.formation.group is not None else None
        member.fell_unseen = False
        if member.has_lost and not raft.doubted and raft.has_seat:
            member.has_lost = False

    def _trace_send(self, sender: PeerId, to: PeerId, message: Message | RepairMessage) -> None:
        self.trace.add(self.loop.now_us, "  {} to {} {}", sender, to, message)
