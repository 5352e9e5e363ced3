"""One simulated host: its disk, its clock, its power, and the lives of the member's process on it (process.py)."""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Protocol

from disk.disk import DiskError, NoSpaceError
from dledger.config import DLedgerConfig
from dledger.core.member_config import MemberConfig
from dledger.core.messages import PeerId
from dledger.entry import Index
from dledger.pushed_entries import Received
from dledger.steady_clock import steady_clock
from remoting.address import Address
from simulator.faults.damage import Damage, as_it_was
from simulator.harness.options import DELAY_LEVELS, TIMER_PRECISION_MS, TIMER_ROLL_WINDOW_MS, Options
from simulator.harness.trace import Trace
from simulator.world.disk_nodes import DeferredRun
from simulator.world.event_loop import EventLoop
from simulator.world.host_clock import HostClock
from simulator.world.process import Process
from simulator.world.sim_disk import CrashPointReached, SimDisk
from simulator.world.sim_network import Connection, SimNetwork
from store.layout.consume_queue_unit import CQ_UNIT, CQ_UNIT_SIZE
from store.layout.index_file import IndexFileShape
from store.store_config import StoreConfig

ROOT = "/store"


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

    def falls(self, member: "SimMember") -> None:
        """In the middle of a step, at a crash point."""
        ...

    def crashed_at_point(self, member: "SimMember", *, in_recovery: bool) -> None: ...


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
        self.damages: list[Damage] = []  # that were done to its disks, to what peers have as well
        self.unit_damages: list[Damage] = []  # to ConsumeQueues, which the member mends by itself
        self.repaired_count = self.begun_behind_count = 0  # ranges, in lives that are over
        self.has_lost = False  # acknowledged entries may be gone from this disk, and it is not made good yet
        # Nothing on its disk tells what lay in front of its first entry, and no start since has found that again.
        self.has_forgotten_begin = False
        # What lay behind its mark was lost while it was down; and the last entry that the mark told the next life of.
        self.has_lost_tail = False
        self.tail_lost_behind: Index | None = None
        self.voters: tuple[PeerId, ...] | None = None  # by its log, as last seen; None: not formed yet
        # It fell amid a step, or by its disk: its log may name other voters than these, until its next life is seen.
        self.fell_unseen = False
        self._watcher = watcher
        self._held: deque[tuple[Process, Callable[..., None], tuple[Any, ...]]] = deque()
        self._random = Random(f"{seed}/{member_id}/host")
        skew_ms = self._random.randint(-options.clock_skew_ms_max, options.clock_skew_ms_max)
        self.clock = HostClock(loop, skew_ms)
        self._process_ms = steady_clock(self.clock.wall_ns, self.clock.monotonic_ns)
        self.disk = self._new_disk()
        number = int(member_id[1:])
        self.config = DLedgerConfig(
            group="simulated",
            self_id=member_id,
            peers={peer: Address("127.0.0.1", 1 + int(peer[1:])) for peer in member_ids},
            directory=f"{ROOT}/dledger-{member_id}",
            flush_mode=options.flush_mode,
            data_file_size=options.data_file_size,
            index_file_size=options.index_file_size,
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
                preferred_leader_ids=tuple(
                    peer for peer in options.preferred_leader_ids if peer in member_ids
                ),
                preferred_leader_retry_ms_min=1_000,
            ),
        )
        self.store_config = StoreConfig(
            store_path_root_dir=ROOT,
            ledger_directory=self.config.directory,
            store_host=struct.pack(">4BI", 127, 0, 0, 1, 10911 + number),
            mapped_file_size_commit_log=options.data_file_size,
            mapped_file_size_consume_queue=options.consume_queue_file_size,
            mapped_file_size_timer_log=4096,
            max_message_size=4096,
            index_file_shape=IndexFileShape(97, 300),  # a simulated disk has no holes
            index_keys_per_flush=options.index_keys_per_flush,
            checkpoint_entries_max=options.checkpoint_entries_max,
            consume_queue_cache_size=0,
            delay_levels=DELAY_LEVELS,
            timer_precision_ms=TIMER_PRECISION_MS,
            timer_roll_window_ms=TIMER_ROLL_WINDOW_MS,
            file_reserved_time_ms=options.file_reserved_time_ms,
            delete_when=frozenset(range(24)),
            clean_resource_interval_ms=options.clean_resource_interval_ms,
            transaction_timeout_ms=200,
            transaction_check_interval_ms=500,
            transaction_check_max=1 << 30,
        )
        self.on_start: Callable[[SimMember, Process], None] = lambda member, process: None

    @property
    def is_damaged(self) -> bool:
        """Something on its disk is not as it was."""
        self.damages = [damage for damage in self.damages if damage.is_of(self.disk)]
        return bool(self.damages)

    @property
    def has_damaged_units(self) -> bool:
        """Units that count."""
        self.unit_damages = [damage for damage in self.unit_damages if damage.is_of(self.disk)]
        process = self.process
        if process is None or not self.unit_damages:
            return False
        first_bytes = {
            queue.files.directory: queue.first_unit * queue.unit_size for queue in process.store.queues
        }
        # What is mended goes to the medium with the queue's next flush; damage that comes back is found again.
        showing = [damage for damage in self.unit_damages if damage.shows]
        for damage in showing:
            directory, _, name = damage.path.rpartition("/")
            content = as_it_was(self.disk.read_file(damage.path), self.disk, damage.path, showing)
            start = damage.offset - damage.offset % CQ_UNIT_SIZE
            is_there = CQ_UNIT.unpack_from(content, start)[0] >= process.store.reads.min_phy_offset
            if is_there and int(name) + damage.offset >= first_bytes.get(directory, 0):
                return True
        return False

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
        return SimDisk(
            random,
            lambda: self.loop.now_us,
            self.draw_sync_latency_us,
            keeps_former=self.options.lost_write_interval_ms > 0,
        )

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
            self._watcher.falls(self)
            self.end_process()
            self._watcher.crashed_at_point(self, in_recovery=False)
            self.fell_unseen = True  # behind that: it bars what others lose, not its own power at this point
            return
        if process is self.process:
            self._watcher.stepped(self)

    # -- Endpoint ----------------------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_stopping

    def received(self, sender: PeerId, messages: Sequence[Received]) -> None:
        process = self.process
        if process is not None:
            for message, _ in messages:
                self.trace.add(self.loop.now_us, "{}->{} {}", sender, self.member_id, message)
            self._step(process, process.receive_all, (messages,))

    def link_up(self, connection: Connection, peer: PeerId) -> None:
        other = self.network.members[peer]
        assert isinstance(other, SimMember)
        assert other.process is not None, "both ends of a handshake run"
        self.trace.add(self.loop.now_us, "{} link up {}", self.member_id, connection)
        replica = other.process.replica
        disk_uuid, group, begin_pos = (
            replica.formation.identity.disk_uuid,
            replica.formation.group,
            replica.formation.begin_pos,
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
        self.on_start(self, process)
        self.network.started(self.member_id)
        self.call_later(0, process, process.tick, 0)

    def end_process(self, *, silently: bool = False) -> None:
        """Killed: from here on nothing of it runs. `silently`: the host went with it."""
        self.trace.add(self.loop.now_us, "{} ends life {}", self.member_id, self.life)
        if self.process is not None:
            self.repaired_count += self.process.replica.repairer.repaired_count
            self.begun_behind_count += self.process.replica.repairer.begun_behind_count
        self.process = None
        self.is_paused = False
        self._held.clear()
        self.disk.process_crash()
        self.network.process_ended(self.member_id, silently=silently)

    def process_failed(self, reason: str) -> None:
        self.end_process()
        self.fell_unseen = True
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
        self.voters, self.fell_unseen = None, False
        self.has_lost_tail, self.tail_lost_behind = False, None
        self.has_forgotten_begin = False

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
