"""One simulated host and the lives of the member's process on it.

The process is the code that serves: a Replica and a MessageStore over the simulated disk. What runs them here instead
of dledger/server.py and the broker is this module: virtual time, jobs with latencies, links of the simulated network.
"""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Protocol

from disk.disk import DiskError, NoSpaceError
from dledger.config import DLedgerConfig, PeerAddress
from dledger.core.member_config import MemberConfig
from dledger.core.messages import HeartBeatRequest, Message, PeerId, PushRequest, TimeoutNow
from dledger.core.output import Role
from dledger.entry import Index, Term
from dledger.errors import HandshakeRefusedError
from dledger.formation import GroupIdentity
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.replica import Replica
from dledger.rpc.requests import RepairMessage, RepairRequest, RepairResponse
from dledger.steady_clock import steady_clock
from dledger.tick_pace import TickPace
from simulator.damage import Damage
from simulator.disk import CrashPointReached, SimDisk
from simulator.disk_nodes import DeferredRun
from simulator.event_loop import EventLoop
from simulator.host_clock import HostClock
from simulator.network import Connection, SimNetwork
from simulator.options import DELAY_LEVELS, Options
from simulator.trace import Trace
from store.layout.index_file import IndexFileShape
from store.message_store import MessageStore
from store.store_config import StoreConfig

ROOT = "/store"
_STOP_POLL_US = 1_000


class Watcher(Protocol):
    """Who looks at a member after each of its steps."""

    def stepped(self, member: "SimMember") -> None: ...

    def failed(self, member: "SimMember", reason: str) -> None:
        """It has stopped itself, or its code has raised what nobody expected."""
        ...

    def no_space_to_start(self, member: "SimMember") -> None:
        """Recovery has found none for what it was to mend: the process ends, and says so."""
        ...

    def starts(self, member: "SimMember") -> None:
        """Its next life is about to begin."""
        ...

    def crashed_at_point(self, member: "SimMember", *, in_recovery: bool) -> None: ...


@dataclass(slots=True)
class _StoreRuntime:
    """StoreRuntime of one life."""

    process: "Process"

    def submit(self, job: DiskJob) -> None:
        self.process.submit_for(self.process.store_job_done, job)

    def reput_wanted(self) -> None:
        self.process.want_reput()


class Process:
    """One life: from the recovery of what the disk holds to a crash or a stop. It is the Runtime of its replica."""

    def __init__(self, host: "SimMember", life: int) -> None:
        """Raises what recovery raises, and CrashPointReached."""
        self.host = host
        self.life = life
        self.outgoing: dict[PeerId, Connection] = {}
        self.incoming: dict[PeerId, Connection] = {}
        self.is_leaving = False  # it is to stop, and hands over before
        self.is_stopping = False
        self.told_at: tuple[Index, Index] | None = None
        self.suspended_before_us = host.clock.suspended_us
        # The leader of a term, and when it was last heard, unless the connection to it has closed since.
        self._heard: tuple[Term, PeerId, int] | None = None
        self._is_reput_wanted = False
        self._network = host.network
        self.store = MessageStore(host.store_config, host.disk, _StoreRuntime(self))
        log_config = replace(host.config.log_config, recent_bytes_max=host.options.recent_bytes_max)
        quorum_state = QuorumState.load(host.disk, host.config.directory)
        self.replica = Replica(
            host.config,
            LogStore.open(host.disk, log_config, self.store.is_sound_body),
            quorum_state,
            self.store,
            self,
            Random(f"{host.seed}/{host.member_id}/{life}"),
            host.now_ms(),
            boot_id=f"{host.member_id}-boot-{host.boot}",
        )
        self.store.start(self.replica, host.now_ms())
        self._pace = TickPace(self.replica)
        self._tick_number = 0

    # -- Runtime -----------------------------------------------------------------------------------------------

    def send(self, to: PeerId, message: Message | RepairMessage, buffers: Sequence[bytes]) -> None:
        if isinstance(message, TimeoutNow):
            self.told_at = self.replica.member.committed_index, self.replica.log.ledger_end_index
        self._network.send(self.host.member_id, to, message, buffers)

    def submit(self, job: DiskJob) -> None:
        self.submit_for(self.replica_job_done, job)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.host.call_later(0, self, callback)

    def drop_connection(self, peer: PeerId, reason: str) -> None:
        # No path changes bytes, so nobody ever pushes what is not sound.
        self.failed(f"dropped {peer}: {reason}")

    def failed(self, reason: str) -> None:
        self.host.call_later(0, self, self.host.process_failed, reason)

    # -- steps -------------------------------------------------------------------------------------------------

    def tick(self, number: int) -> None:
        """`number`: of the last one that was wanted; others were too late."""
        host = self.host
        if number == self._tick_number and not self.is_stopping:
            now_ms = host.now_ms()
            delay_ms = self._pace.delay_ms() if host.options.paces_ticks else host.options.tick_interval_ms
            self.replica.tick(now_ms)
            self.store.tick(now_ms)
            self._tick_in(delay_ms)

    def _tick_in(self, delay_ms: int) -> None:
        self._tick_number += 1
        self.host.call_later(delay_ms * 1_000, self, self.tick, self._tick_number)

    def receive(self, message: Message | RepairMessage, payload: bytes) -> None:
        if self.is_stopping:
            return
        if isinstance(message, RepairRequest | RepairResponse):
            self.replica.receive_repair(message, self.host.now_ms(), payload)
        else:
            self.replica.receive(message, self.host.now_ms(), payload)
            if isinstance(message, HeartBeatRequest | PushRequest):
                raft = self.replica.member
                if (raft.curr_term, raft.leader_id) == (message.term, message.leader_id):
                    self._heard = (raft.curr_term, message.leader_id, self.host.loop.now_us)

    @property
    def leader_heard_us(self) -> int | None:
        """When it heard the leader of its term, to which it is connected, by the simulator's own time."""
        if self._heard is None or self._heard[0] != self.replica.member.curr_term:
            return None
        return self._heard[2]

    def submit_for(self, done: Callable[[DiskJob, DeferredRun], None], job: DiskJob) -> None:
        host = self.host
        run = host.disk.run_deferred(job.run)
        host.trace.add(host.loop.now_us, "{} job {} until {}", host.member_id, job.kind, run.end_us)
        host.loop.call_at(run.end_us, host.complete_run, self, run)
        host.call_at(run.end_us, self, done, job, run)

    def replica_job_done(self, job: DiskJob, run: DeferredRun) -> None:
        self.replica.job_done(job, run.error, self.host.now_ms())

    def store_job_done(self, job: DiskJob, run: DeferredRun) -> None:
        self.store.job_done(job, run.error, self.host.now_ms())

    def want_reput(self) -> None:
        if not self._is_reput_wanted:
            self._is_reput_wanted = True
            self.host.call_later(0, self, self._reput)

    def _reput(self) -> None:
        self._is_reput_wanted = False
        self.store.reput_step(self.host.now_ms())

    # -- links, as dledger/server.py has them ------------------------------------------------------------------

    def link_up(
        self,
        connection: Connection,
        peer: PeerId,
        disk_uuid: bytes,
        group: GroupIdentity | None,
        begin_pos: int,
    ) -> None:
        if self.is_stopping:
            return
        now_ms = self.host.now_ms()
        try:
            formed_now = self.replica.peer_seen(peer, disk_uuid, group, now_ms, begin_pos=begin_pos)
        except HandshakeRefusedError as error:
            self.failed(f"handshake with {peer} refused: {error}")
            return
        if formed_now:
            self.host.close_connections()
            return
        if connection.acceptor == peer:
            if peer in self.outgoing:
                self.link_down(
                    self.outgoing[peer], peer
                )  # the reset comes before a new connection can be made
            self.outgoing[peer] = connection
            self.replica.peer_connected(peer, now_ms)
        else:
            self.incoming[peer] = connection

    def link_down(self, connection: Connection, peer: PeerId) -> None:
        links = self.outgoing if connection.acceptor == peer else self.incoming
        if links.get(peer) is not connection or self.is_stopping:
            return
        del links[peer]
        if self._heard is not None and self._heard[1] == peer:
            self._heard = None
        now_ms = self.host.now_ms()
        self.replica.peer_disconnected(peer, now_ms)
        if self.host.options.paces_ticks:
            self._tick_in(self.host.options.tick_interval_ms)
        if peer in self.outgoing:
            self.replica.peer_connected(peer, now_ms)

    # -- the end -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Cleanly, as soon as nothing is under way; where the options say so, another member leads before."""
        self.is_leaving = True
        if self.host.options.stops_hand_over:
            now_ms = self.host.now_ms()
            self.replica.leave(now_ms)
            self._stop_when_handed_over(now_ms + self.host.config.member_config.transfer_timeout_ms)
        else:
            self._stop()

    def _stop_when_handed_over(self, until_ms: int) -> None:
        if self.replica.member.role is Role.LEADER and self.host.now_ms() < until_ms:
            self.host.call_later(_STOP_POLL_US, self, self._stop_when_handed_over, until_ms)
        else:
            self._stop()

    def _stop(self) -> None:
        self.is_stopping = True
        self.replica.stop(self.host.now_ms())
        self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self.replica.failure is not None:
            return
        if not self.replica.idle or self.store.is_busy:
            self.host.call_later(_STOP_POLL_US, self, self._close_when_idle)
            return
        try:
            self.store.close(clean=True)
            self.replica.close(clean=True)
        except DiskError as error:
            self.host.process_failed(f"clean stop: {error}")
            return
        self.host.process_stopped()


class SimMember:
    """A host: its disk, its clock, its power; `process` is None while none runs. It is the network's Endpoint."""

    def __init__(
        self,
        member_id: PeerId,
        member_ids: Sequence[PeerId],
        seed: int,
        options: Options,
        loop: EventLoop,
        network: SimNetwork,
        trace: Trace,
        watcher: Watcher,
    ) -> None:
        self.member_id = member_id
        self.seed = seed
        self.options = options
        self.loop = loop
        self.network = network
        self.trace = trace
        self.process: Process | None = None
        self.life = 0
        self.boot = 0
        self.is_paused = False
        self.sync_slowdown = 1
        self.sync_hang_us = 0  # by which the next sync is late
        self.may_fail = False  # a fault was injected that this process may end by
        self.damages: list[Damage] = []  # that were done to its disks
        self.repaired_count = 0  # ranges, in lives that are over
        self.has_lost = False  # acknowledged entries may be gone from this disk, and it is not made good yet
        self.voters: tuple[PeerId, ...] | None = None  # by its log, as last seen; None: not formed yet
        self._watcher = watcher
        self._held: deque[tuple[Process, Callable[..., None], tuple[Any, ...]]] = deque()
        self._random = Random(f"{seed}/{member_id}/host")
        skew_ms = self._random.randint(-options.clock_skew_ms_max, options.clock_skew_ms_max)
        self.clock = HostClock(loop, skew_ms)
        self._process_ms = steady_clock(self.clock.wall_ns, self.clock.monotonic_ns)
        self.disk = self._new_disk()
        number = member_ids.index(member_id)
        self.config = DLedgerConfig(
            group="simulated",
            self_id=member_id,
            peers={peer: PeerAddress("127.0.0.1", 1 + n) for n, peer in enumerate(member_ids)},
            directory=f"{ROOT}/dledger-{member_id}",
            flush_mode=options.flush_mode,
            data_file_size=options.data_file_size,
            index_file_size=options.index_file_size,
            entry_size_max=options.data_file_size // 2,
            tick_interval_ms=options.tick_interval_ms,
            scrub_bytes_per_second=options.scrub_bytes_per_second,
            scrub_pause_ms=options.scrub_pause_ms,
            member=MemberConfig(
                self_id=member_id,
                peers=tuple(member_ids),
                heart_beat_interval_ms=options.heart_beat_interval_ms,
                election_timeout_ms_min=options.election_timeout_ms_min,
                election_timeout_ms_max=options.election_timeout_ms_min * 8 // 5,
                check_quorum_ms=options.election_timeout_ms_min,
                push_size_max=options.push_size_max,
                push_window_size=options.push_window_size,
                transfer_timeout_ms=options.election_timeout_ms_min,
                preferred_leader_ids=tuple(options.preferred_leader_ids),
                preferred_leader_retry_ms_min=1_000,
            ),
        )
        self.store_config = StoreConfig(
            store_path_root_dir=ROOT,
            ledger_directory=self.config.directory,
            store_host=struct.pack(">4BI", 127, 0, 0, 1, 10911 + number),
            mapped_file_size_commit_log=options.data_file_size,
            mapped_file_size_consume_queue=options.consume_queue_file_size,
            max_message_size=4096,
            index_file_shape=IndexFileShape(97, 300),  # a simulated disk has no holes
            index_keys_per_flush=options.index_keys_per_flush,
            checkpoint_entries_max=options.checkpoint_entries_max,
            consume_queue_cache_size=0,
            delay_levels=DELAY_LEVELS,
            file_reserved_time_ms=options.file_reserved_time_ms,
            delete_when=frozenset(range(24)),
            clean_resource_interval_ms=options.clean_resource_interval_ms,
        )

    @property
    def is_damaged(self) -> bool:
        """Something on its disk is not as it was."""
        self.damages = [damage for damage in self.damages if damage.disk is self.disk and damage.lasts]
        return bool(self.damages)

    def now_ms(self) -> int:
        """By the clock of the newest process."""
        return self._process_ms()

    def draw_sync_latency_us(self) -> int:
        options = self.options
        latency_us = self._random.randint(options.sync_latency_us_min, options.sync_latency_us_max)
        hang_us, self.sync_hang_us = self.sync_hang_us, 0
        return self.sync_slowdown * latency_us + hang_us

    def _new_disk(self) -> SimDisk:
        random = Random(f"{self.seed}/{self.member_id}/disk/{self.life}")
        return SimDisk(random, lambda: self.loop.now_us, self.draw_sync_latency_us)

    # -- events of the process ---------------------------------------------------------------------------------

    def call_at(self, at_us: int, process: Process, callback: Callable[..., None], *arguments: Any) -> None:
        self.loop.call_at(at_us, self._step, process, callback, arguments)

    def call_later(
        self, delay_us: int, process: Process, callback: Callable[..., None], *arguments: Any
    ) -> None:
        self.loop.call_at(self.loop.now_us + delay_us, self._step, process, callback, arguments)

    def call(self, callback: Callable[..., None], *arguments: Any) -> None:
        """A step of the process that runs now; held back while it is paused."""
        if self.process is not None:
            self._step(self.process, callback, arguments)

    def _step(self, process: Process, callback: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if process is not self.process:
            return
        if self.is_paused:
            self._held.append((process, callback, arguments))
            return
        try:
            callback(*arguments)
        except CrashPointReached:
            self.end_process()
            self._watcher.crashed_at_point(self, in_recovery=False)
            return
        if process is self.process:
            self._watcher.stepped(self)

    # -- Endpoint ----------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_stopping

    def received(self, sender: PeerId, message: Message | RepairMessage, payload: bytes) -> None:
        process = self.process
        if process is not None:
            self.trace.add(self.loop.now_us, "{}->{} {}", sender, self.member_id, message)
            self._step(process, process.receive, (message, payload))

    def link_up(self, connection: Connection, peer: PeerId) -> None:
        other = self.network.members[peer]
        assert isinstance(other, SimMember)
        assert other.process is not None, "both ends of a handshake run"
        self.trace.add(self.loop.now_us, "{} link up {}", self.member_id, connection)
        replica = other.process.replica
        disk_uuid, group, begin_pos = (
            replica.identity.disk_uuid,
            replica.group_identity,
            replica.begin_pos,
        )
        process = self.process
        assert process is not None, "both ends of a handshake run"
        self.call_later(0, process, process.link_up, connection, peer, disk_uuid, group, begin_pos)

    def link_down(self, connection: Connection, peer: PeerId) -> None:
        process = self.process
        if process is not None:
            self.trace.add(self.loop.now_us, "{} link down {}", self.member_id, connection)
            self._step(process, process.link_down, (connection, peer))

    # -- lives -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Recovers and joins. A crash point within the recovery ends it; whoever restarts members tries again."""
        assert self.process is None, "one life at a time"
        self.life += 1
        self.is_paused = False
        self.clock.set_right()
        self._process_ms = steady_clock(self.clock.wall_ns, self.clock.monotonic_ns)
        self.trace.add(self.loop.now_us, "{} starts life {}", self.member_id, self.life)
        self._watcher.starts(self)
        try:
            process = Process(self, self.life)
        except CrashPointReached:
            self.disk.process_crash()
            self._watcher.crashed_at_point(self, in_recovery=True)
            return
        except NoSpaceError:
            self.disk.process_crash()
            self._watcher.no_space_to_start(self)
            return
        except DiskError as error:
            self.disk.process_crash()
            self._watcher.failed(self, f"recovery: {error}")
            return
        self.process = process
        self.network.started(self.member_id)
        self.call_later(0, process, process.tick, 0)

    def end_process(self, *, silently: bool = False) -> None:
        """Killed: from here on nothing of it runs. `silently`: the host went with it."""
        self.trace.add(self.loop.now_us, "{} ends life {}", self.member_id, self.life)
        if self.process is not None:
            self.repaired_count += self.process.replica.repairer.repaired_count
        self.process = None
        self.is_paused = False
        self._held.clear()
        self.disk.process_crash()
        self.network.process_ended(self.member_id, silently=silently)

    def process_failed(self, reason: str) -> None:
        self.end_process()
        self._watcher.failed(self, reason)

    def process_stopped(self) -> None:
        self.trace.add(self.loop.now_us, "{} stopped cleanly", self.member_id)
        self.end_process()

    def lose_power(self) -> int:
        """Returns how many unsynced bytes were lost."""
        if self.process is not None:
            self.end_process(silently=True)
        self.boot += 1
        return self.disk.power_loss()

    def wipe(self) -> None:
        """Another, empty disk in the place of the old one."""
        self.disk = self._new_disk()
        self.voters = None

    def close_connections(self) -> None:
        for pair in list(self.network.up):
            if self.member_id in pair:
                self.network.close(*pair)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        """What came meanwhile is handled at once, in order."""
        self.is_paused = False
        held, self._held = self._held, deque()
        for process, callback, arguments in held:
            self.loop.call_at(self.loop.now_us, self._step, process, callback, arguments)

    def complete_run(self, process: Process, run: DeferredRun) -> None:
        """The kernel has done what a job asked for, whether or not the process stands still."""
        if process is self.process:
            self.disk.complete(run)
