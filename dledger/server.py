"""The shell of a replica: event loop, sockets, timer, threads. It decides nothing about the log.

Each member dials every other; requests leave on the dialled connection, answers come back on it
(peer_link.py). The blocking jobs run in a small thread pool and are settled on the loop, so the replica
lives in one thread.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from disk.disk import Disk
from dledger.config import Address, DLedgerConfig
from dledger.core.membership import Membership, Seat
from dledger.core.messages import (
    HeartBeatResponse,
    Message,
    PeerId,
    PushResponse,
    ReadIndexResponse,
    VoteResponse,
)
from dledger.core.output import Role
from dledger.door import Door, Listening, PlainDoor
from dledger.errors import HandshakeRefusedError
from dledger.figures import Figures
from dledger.formation import GroupIdentity
from dledger.job_thread import JobThread
from dledger.log.jobs import DiskJob, SyncJob
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import QuorumState
from dledger.peer_link import PeerLink
from dledger.pushed_entries import Received
from dledger.reader_answers import answer_metadata
from dledger.replica import Replica
from dledger.replica_status import replica_figures, replica_status
from dledger.rpc.codec import PeerMessage
from dledger.rpc.handshake import NONCE_SIZE, WIRE_VERSION_MAX, Hello
from dledger.rpc.requests import (
    GetRequest,
    GetResponse,
    MetadataRequest,
    MetadataResponse,
    RepairMessage,
    RepairResponse,
)
from dledger.runtime import Embedder
from dledger.steady_clock import steady_clock
from dledger.tick_pace import TickPace

log = logging.getLogger(__name__)


def make_clock() -> Callable[[], int]:
    """The steady clock of this process."""
    return steady_clock(time.time_ns, time.monotonic_ns)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


class DLedgerServer:
    """One member on the running event loop. It is also the Runtime of its replica and the owner of its
    links.
    """

    def __init__(
        self,
        config: DLedgerConfig,
        disk: Disk,
        embedder: Embedder,
        *,
        on_failure: Callable[[str], None],
        random: Random | None = None,
        clock: Callable[[], int] | None = None,
        open_log: Callable[[Disk, DLedgerConfig], LogStore] | None = None,
        on_tick: Callable[[int], int | None] = lambda now_ms: None,
        listens: bool = True,
        features: Sequence[str] = (),
        door: Door | None = None,
    ) -> None:
        """Recovers the log, which blocks. Raises what LogStore.open() and QuorumState.load() raise.

        `on_failure` is called once, when the member must not go on; close() is still to be called then. `open_log`: for
        entries of another form than DLedger's. `on_tick` is called after each tick of the member, with the time; it
        says when the next one is to come at the latest, if it knows. `listens`: not where nobody is to ask, as in a
        group of one for good. `features`: of the embedder, to be told to peers: what members of an earlier release may
        not know. `door`: how peers are reached, if not in plaintext.
        """
        self._door = door or PlainDoor()
        self.config = config
        self.now_ms = clock or make_clock()
        self._random = random or Random()
        self._on_failure = on_failure
        self._on_tick = on_tick
        self._listens = listens
        self._features = tuple(features)
        quorum_state = QuorumState.load(disk, config.directory)
        if open_log is not None:
            log_store = open_log(disk, config)
        else:
            log_store = LogStore.open(disk, config.log_config, embedder.is_sound_body, quorum_state.last_run)
        self.replica = Replica(
            config, log_store, quorum_state, embedder, self, self._random, self.now_ms(), boot_id=_boot_id()
        )
        self._outgoing: dict[PeerId, PeerLink] = {}
        self._incoming: dict[PeerId, PeerLink] = {}
        self._links: set[PeerLink] = set()  # also readers and unfinished ones
        self._dial_now: dict[PeerId, asyncio.Event] = {}
        self._dials: dict[PeerId, asyncio.Task[None]] = {}
        # Formed, the members, and who was a voter up to now: who is dialled.
        self._dialled_for: tuple[bool, Membership, Mapping[PeerId, Seat]] | None = None
        # By kind of job (disk_work.py): none waits behind a disk that hangs in another.
        self._job_threads: dict[str, JobThread] = {}
        self._idle: asyncio.Event = asyncio.Event()
        self._server: Listening | None = None
        self._tick_handle: asyncio.TimerHandle | None = None
        self._is_ticking = False
        self._pace = TickPace(self.replica, self._tick_in)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False
        self._hand_over_settled: asyncio.Event | None = None

    # -- start and end
    # -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listens, dials, ticks. Raises OSError when the port is taken."""
        self._loop = asyncio.get_running_loop()
        if self._listens:
            address = self.config.listen
            self._server = await self._door.listen(lambda: self._new_link(None), address.host, address.port)
            log.info("%s listening at=%s", self.replica, address)
        self._is_ticking = True
        self._tick()

    async def hand_over(self) -> bool:
        """Before stop(): lets another member lead, for `transfer_timeout_ms` at most. Whether this one led and another
        does now.
        """
        led = self.replica.member.role is Role.LEADER
        self.replica.leave(self.now_ms())
        if not led:
            return False
        settled = self._hand_over_settled = asyncio.Event()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.config.member_config.transfer_timeout_ms / 1000):
                await settled.wait()
        return self._another_leads()

    def _another_leads(self) -> bool:
        return self.replica.member.leader_id not in (None, self.config.self_id)

    async def stop(self) -> None:
        """A clean stop: hands over nothing (hand_over() does), but leaves the log synced and marked and the exports
        written.
        """
        self.replica.stop(self.now_ms())
        await self._close_links()
        while not (self.replica.idle or self.replica.failure):
            self._idle.clear()
            await self._idle.wait()
        await self.close(clean=self.replica.failure is None)

    async def close(self, *, clean: bool = False) -> None:
        """Leaves the network and the disk. Without `clean`, as a crash would leave them."""
        await self._close_links()
        # What the last jobs say is heard by nobody, or it would begin others, in threads that nobody ends.
        self._loop = None
        self._is_closed = True
        await asyncio.get_running_loop().run_in_executor(None, self._close_job_threads)
        self.replica.close(clean=clean)

    def _close_job_threads(self) -> None:
        for thread in self._job_threads.values():
            thread.close()

    async def _close_links(self) -> None:
        self._is_ticking = False
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        if self._server is not None:
            self._server.close()
            self._server = None
        for dial in self._dials.values():
            dial.cancel()
        await asyncio.gather(*self._dials.values(), return_exceptions=True)
        self._dials.clear()
        links = list(self._links)
        for link in links:
            link.abort("this member stops")
        await asyncio.gather(*(link.lost.wait() for link in links))

    def _tick(self) -> None:
        now_ms = self.now_ms()
        due_ms: int | None = None
        try:
            self.replica.tick(now_ms)
            due_ms = self._on_tick(now_ms)
        finally:
            self._pace.ticked(now_ms, due_ms)
        if self._hand_over_settled is not None and (self._another_leads() or not self._outgoing):
            self._hand_over_settled.set()
        member = self.replica.member
        dialled_for = self.replica.formation.is_formed, member.membership, member.leaving_voters
        if dialled_for != self._dialled_for:
            self._dialled_for = dialled_for
            self._follow_members()

    def _follow_members(self) -> None:
        """Dials those who are members, and nobody else any more. Others may dial this one."""
        assert self._loop is not None
        addresses = self.replica.addresses
        for peer in [peer for peer in self._dials if peer not in addresses]:
            self._dials.pop(peer).cancel()
            if peer in self._outgoing:
                self._outgoing[peer].close("it is no member any more")
        for peer, address in addresses.items():
            if peer != self.config.self_id and peer not in self._dials:
                self._dial_now[peer] = asyncio.Event()
                dial_address = self.config.peer_dial.get(peer) or address
                self._dials[peer] = self._loop.create_task(
                    self._dial(peer, dial_address), name=f"dial-{peer}"
                )

    def _tick_in(self, delay_ms: int) -> None:
        if self._tick_handle is not None:
            self._tick_handle.cancel()
        if self._is_ticking:
            assert self._loop is not None
            # The loop counts in ms of its own: by this clock its timers may be a fraction of one early.
            self._tick_handle = self._loop.call_later((delay_ms + 1) / 1000, self._tick)

    def wake(self) -> None:
        """The embedder has something to do at the next tick: that is to come soon."""
        self._pace.wake()

    def status(self) -> dict[str, Any]:
        listen = str(self.config.listen) if self._listens else None
        links = sorted(self._outgoing.items())
        return replica_status(self.replica) | {
            "raft": listen,
            "cluster_secrets": len(self.config.cluster_secrets.read_again()),
            "links": [peer for peer, _ in links],
            "wire_versions": {peer: link.wire_version for peer, link in links},
        }

    def figures(self) -> Figures:
        syncs = self._job_threads.get(SyncJob.kind)
        return {
            **replica_figures(self.replica),
            "links": len(self._outgoing),
            "sync_seconds": syncs.times.figures() if syncs is not None else {},
        }

    # -- Runtime
    # -------------------------------------------------------------------------------------------------

    def send(self, to: PeerId, message: Message | RepairMessage, buffers: Sequence[bytes]) -> None:
        if self._pace.rests:
            self._pace.sent(message)
        links = self._incoming if type(message) in _ANSWERS else self._outgoing
        link = links.get(to)
        if link is not None:
            link.send(message, buffers)

    def submit(self, job: DiskJob) -> None:
        if self._is_closed:
            return
        self._pace.wake()
        thread = self._job_threads.get(job.kind)
        if thread is None:
            name = f"{self.config.self_id}-{job.kind}"
            thread = self._job_threads[job.kind] = JobThread(name, self._job_run)
        thread.submit(job)

    def call_soon(self, callback: Callable[[], None]) -> None:
        if self._is_closed:
            return
        assert self._loop is not None, "started"
        self._loop.call_soon(callback)

    def drop_connection(self, peer: PeerId, reason: str) -> None:
        link = self._incoming.get(peer)
        if link is not None:
            link.close(reason)

    def failed(self, reason: str) -> None:
        self._idle.set()
        self._on_failure(reason)

    def _job_run(self, job: DiskJob, error: Exception | None) -> None:
        """In a thread of a job."""
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._job_done, job, error)

    def _job_done(self, job: DiskJob, error: Exception | None) -> None:
        if self._loop is None:
            return
        self.replica.job_done(job, error, self.now_ms())
        self._pace.wake()
        if self.replica.idle:
            self._idle.set()

    # -- links
    # ---------------------------------------------------------------------------------------------------

    def _new_link(self, dialled: PeerId | None) -> PeerLink:
        identity, group = self.replica.formation.identity, self.replica.formation.group
        own = Hello(
            group=self.config.group,
            member_id=self.config.self_id,
            addressee_id=dialled or "",
            nonce=os.urandom(NONCE_SIZE),
            disk_uuid=identity.disk_uuid,
            group_uuid=group.group_uuid if group is not None else None,
            pairs=group.pairs if group is not None else (),
            membership_index=self.replica.member.membership_index,
            data_file_size=self.config.data_file_size,
            begin_pos=self.replica.formation.begin_pos,
            wire_version_max=WIRE_VERSION_MAX,
            peers=tuple(self.config.peers) if group is None else (),
            features=self._features,
        )
        members = frozenset((*self.config.peers, *self.replica.member.membership.members))
        return PeerLink(self, self.config, own, members=members, dialled=dialled)

    async def _dial(self, peer: PeerId, address: Address) -> None:
        """Keeps the connection by which this member asks `peer`."""
        backoff_ms = self.config.dial_backoff_ms_min
        dial_now = self._dial_now[peer]
        told: str | None = None  # of the newest dial that failed; it may go on for hours
        while True:
            link: PeerLink | None = None
            try:
                link = await self._connect(peer, address)
                told = None
                await link.lost.wait()
            except OSError as error:
                if str(error) != told:
                    told = str(error)
                    log.info(
                        "%s peer cannot be reached peer=%s at=%s error=%s", self.replica, peer, address, error
                    )
            if link is not None and link.established:
                backoff_ms = self.config.dial_backoff_ms_min
            dial_now.clear()
            try:
                async with asyncio.timeout(backoff_ms * self._random.uniform(0.5, 1.0) / 1000):
                    await dial_now.wait()
            except TimeoutError:
                backoff_ms = min(2 * backoff_ms, self.config.dial_backoff_ms_max)

    async def _connect(self, peer: PeerId, address: Address) -> PeerLink:
        """Raises OSError."""
        made: list[PeerLink] = []

        def make() -> PeerLink:
            made.append(self._new_link(peer))
            return made[-1]

        try:
            await self._door.connect(make, address.host, address.port)
        except asyncio.CancelledError:
            # A connection that was made and not handed out yet uvloop closes without a word to its protocol.
            for link in made:
                link.connection_lost(None)
            raise
        return made[0]

    def link_made(self, link: PeerLink) -> None:
        self._links.add(link)
        if self._server is None:
            link.abort("this member stops")

    def link_established(self, link: PeerLink, peer: Hello) -> None:
        peer_id = peer.member_id
        if peer_id == "":
            return  # a reader
        group = GroupIdentity(peer.group_uuid, peer.pairs) if peer.group_uuid is not None else None
        assert peer.disk_uuid is not None, "checked in the handshake"
        try:
            formed_now = self.replica.peer_seen(
                peer_id,
                peer.disk_uuid,
                group,
                self.now_ms(),
                begin_pos=peer.begin_pos,
                peers=peer.peers,
                wire_version=link.wire_version,
                features=peer.features,
            )
        except HandshakeRefusedError as error:
            link.close(str(error))
            return
        if formed_now:
            for other in list(self._links):
                other.abort("the group has been formed, hands are shaken anew")
            return
        for other in list(self._links):
            if other.peer_id == peer_id and other.disk_uuid not in (None, peer.disk_uuid):
                # What came over it would count as said by the disk that was shown last.
                other.abort("the peer has shown another disk since")
        if link.dialled is None:
            older = self._incoming.get(peer_id)
            self._incoming[peer_id] = link
            if older is not None:
                # Its end at the peer is gone, or the peer would not have dialled.
                older.abort("the peer has dialled again")
            if peer_id not in self._outgoing and peer_id in self._dial_now:
                self._dial_now[peer_id].set()  # it is up: no need to sit out the back-off
        else:
            self._outgoing[peer_id] = link
            self.replica.peer_connected(peer_id, self.now_ms(), repairs=link.knows_repairs)
        log.info("%s link up peer=%s dialled=%s", self.replica, peer_id, link.dialled is not None)

    def link_received(self, link: PeerLink, messages: Sequence[tuple[PeerMessage, bytes]]) -> None:
        replica = self.replica
        of_group: list[Received] = []
        for message, payload in messages:
            match message:
                case GetRequest():
                    size_max = self.config.member_config.push_size_max
                    link.send(*replica.committed_entries(message, size_max))
                case MetadataRequest():
                    addresses = replica.addresses
                    link.send(answer_metadata(self.config, replica.log, replica.member, addresses, message))
                case GetResponse() | MetadataResponse():
                    raise AssertionError("no link asks for these")
                case _:
                    of_group.append((message, payload))
        if of_group:
            now_ms = self.now_ms()
            replica.receive_all(of_group, now_ms)
            if self._pace.rests and self._pace.is_occasion(now_ms):
                self._tick()

    def link_lost(self, link: PeerLink) -> None:
        self._links.discard(link)
        links = self._incoming if link.dialled is None else self._outgoing
        peer_id = link.peer_id
        if links.get(peer_id) is not link:
            return
        del links[peer_id]
        log.info(
            "%s link down peer=%s dialled=%s reason=%s",
            *(self.replica, peer_id, link.dialled is not None, link.lost_reason),
        )
        now_ms = self.now_ms()
        self.replica.peer_disconnected(peer_id, now_ms)
        self._pace.wake()  # it may be the leader, and what follows is timed in tens of milliseconds
        if peer_id in self._outgoing:
            # Only the way in is closed: the peer can still be asked, whatever it means that it asks no more.
            self.replica.peer_connected(peer_id, now_ms, repairs=self._outgoing[peer_id].knows_repairs)


_ANSWERS = frozenset((VoteResponse, HeartBeatResponse, PushResponse, RepairResponse, ReadIndexResponse))
