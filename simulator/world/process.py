"""One life of a simulated member: from the recovery of what its disk holds to a crash or a stop.

It is the code that serves, a Replica and a MessageStore over the simulated disk. What runs them here instead of
dledger/server.py and the broker is this module: virtual time, jobs with latencies, links of the simulated network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from disk.disk import DiskError
from dledger.core.messages import HeartBeatRequest, Message, PeerId, PushRequest, TimeoutNow
from dledger.core.output import Role
from dledger.entry import Index, Term
from dledger.errors import HandshakeRefusedError
from dledger.formation import GroupIdentity
from dledger.log.jobs import DiskJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.pushed_entries import Received
from dledger.replica import Replica
from dledger.rpc.requests import RepairMessage
from dledger.tick_pace import TickPace
from simulator.world.disk_nodes import DeferredRun
from simulator.world.sim_network import Connection
from store.message_store import MessageStore

if TYPE_CHECKING:
    from simulator.world.sim_member import SimMember

_STOP_POLL_US = 1_000


@dataclass(slots=True)
class _StoreRuntime:
    """StoreRuntime of one life."""

    process: Process

    def submit(self, job: DiskJob) -> None:
        self.process.submit_for(self.process.store_job_done, job)

    def reput_wanted(self) -> None:
        self.process.want_reput()

    def clock(self) -> int:
        return self.process.host.now_ms()

    def monotonic_us(self) -> int:
        return self.process.host.loop.now_us

    def call_soon(self, step: Callable[[], None]) -> None:
        self.process.call_soon(step)

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        self.process.host.call_later(delay_ms * 1_000, self.process, step)


class Process:
    """One life: from the recovery of what the disk holds to a crash or a stop. It is the Runtime of its replica."""

    def __init__(self, host: SimMember, life: int) -> None:
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
            LogStore.open(host.disk, log_config, self.store.is_sound_body, quorum_state.last_run),
            quorum_state,
            self.store,
            self,
            Random(f"{host.seed}/{host.member_id}/{life}"),
            host.now_ms(),
            boot_id=f"{host.member_id}-boot-{host.boot}",
        )
        self._pace = TickPace(self.replica, self._tick_in)
        self.store.start(self.replica, host.now_ms())
        self._tick_number = 0

    # -- Runtime -----------------------------------------------------------------------------------------------

    def send(self, to: PeerId, message: Message | RepairMessage, buffers: Sequence[bytes]) -> None:
        if isinstance(message, TimeoutNow):
            self.told_at = self.replica.member.committed_index, self.replica.log.ledger_end_index
        self._pace.sent(message)
        self._network.send(self.host.member_id, to, message, buffers)

    def submit(self, job: DiskJob) -> None:
        self._pace.wake()
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
            self.replica.tick(now_ms)
            self.store.tick(now_ms)
            if host.options.paces_ticks:
                self._pace.ticked(now_ms, self.store.due_ms(now_ms))
            else:
                self._tick_in(host.options.tick_interval_ms)

    def _tick_in(self, delay_ms: int) -> None:
        self._tick_number += 1
        self.host.call_later(delay_ms * 1_000, self, self.tick, self._tick_number)

    def receive_all(self, messages: Sequence[Received]) -> None:
        if self.is_stopping:
            return
        now_ms = self.host.now_ms()
        self.replica.receive_all(messages, now_ms)
        if self._pace.is_occasion(now_ms):
            self.tick(self._tick_number)
        for message, _ in messages:
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
        self._pace.wake()

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
            formed_now = self.replica.peer_seen(
                peer, disk_uuid, group, now_ms, begin_pos=begin_pos, features=self.store.features
            )
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
        self._pace.wake()
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
