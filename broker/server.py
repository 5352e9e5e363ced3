"""A broker process: disk, member of the group, store, sockets, clock and signals around the pure parts.

One event loop runs everything but blocking disk work. Order at the end of a clean stop: another member leads,
NameServers are told, no request is taken any more, the log is synced, then what is derived from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import random
import signal
import time
from collections.abc import Callable
from typing import Any

from broker.access.passed_on import PASSED_ON
from broker.broker_controller import BrokerController
from broker.config.broker_config import BrokerConfig
from broker.config.component_configs import dledger_config, open_plain_log, store_config
from broker.config.existing_store import with_existing_file_size
from broker.http.http_endpoint import HttpEndpoint
from broker.http.metrics import metrics_text
from broker.leadership.leader_requests import LeaderRequests
from broker.peer_door import peer_door
from broker.registration.route_requests import RouteRequests
from broker.store_lock import StoreLock
from disk.disk import DiskError
from disk.real_disk import RealDisk
from dledger.errors import DLedgerError
from dledger.figures import Figures
from dledger.job_thread import JobThread
from dledger.log.jobs import DiskJob
from dledger.server import DLedgerServer, make_clock
from remoting.address import join
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError
from remoting.frame.command import RemotingCommand
from remoting.security_switches import open_warning
from remoting.server import Channel, RemotingServer
from remoting.tls_settings import client_tls, server_tls
from store.errors import StoreError
from store.java.plain_import import ImportedState, PlainImport, refuse_plain_store
from store.message_store import MessageStore

log = logging.getLogger(__name__)

# At the least, unless something is due before. Little that a client waits for hangs on it: oneway offset commits,
# periods.
TICK_INTERVAL_MS = 50
STATUS_LOG_INTERVAL_MS = 10_000
STATUS_LOG_FIRST_MS = 1_000  # a group that forms or elects at a sound start is no warning yet
REGISTER_RETRY_S = 1.0
UNREGISTER_TIMEOUT_S = 1.0
VIP_PORT_DISTANCE = 2  # RocketMQ's: below listenPort
# Clients of a leader that has handed over are still told that it is another now, until they have asked a NameServer
# which: of a connection that closes they could not know what became of their sends.
LINGER_S = 0.3


class BrokerFailedError(Exception):
    """The broker had to stop by itself. The message is the reason."""


class Broker:
    """The shell of one broker; its processors are in a BrokerController. It is the store's runtime."""

    def __init__(self, config: BrokerConfig) -> None:
        """Recovers log and store, which blocks. Raises TlsError, StoreLockedError, DLedgerError, StoreError,
        OSError.
        """
        tls, to_servers = server_tls(config.tls), client_tls(config.tls)
        door = peer_door(config.dledger.peer_tls, config.tls) if config.dledger is not None else None
        self._rng = random.Random()
        self.clock = make_clock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failure: asyncio.Future[str] | None = None
        self._reput_scheduled = False
        self._next_tick_ms = 0
        self._has_left = False
        self._next_status_log_ms = self.clock() + STATUS_LOG_FIRST_MS
        # One thread: flushing derived files is never urgent.
        self._jobs = JobThread("store", self._job_run)
        self._jobs_under_way = 0
        self._jobs_done = asyncio.Event()
        disk = RealDisk()
        disk.make_directory(config.store.store_path_root_dir)
        self._lock = StoreLock(config.store.store_path_root_dir)
        self.config = config = with_existing_file_size(config, disk)
        self._store = MessageStore(store_config(config), disk, self, local_hour, short_pause)
        plain_import = None
        if config.dledger is None:
            plain_import = PlainImport(disk, self._store.config)
            plain_import.prepare()
        else:
            refuse_plain_store(disk, self._store.config, config.store.store_path_commit_log)
        self._dledger = DLedgerServer(
            dledger_config(config),
            disk,
            self._store,
            on_failure=self._fail,
            random=self._rng,
            clock=self.clock,
            open_log=functools.partial(open_plain_log, config) if config.dledger is None else None,
            on_tick=self._tick,
            listens=config.dledger is not None,
            features=self._store.features,
            door=door,
        )
        replica = self._dledger.replica
        imported = plain_import.take_over(replica.log) if plain_import else ImportedState()
        self._store.start(replica, self.clock(), imported)
        self._client = RemotingClient(
            on_request=self._asked_by_name_server,
            on_close=self._connection_lost,
            before_request=self._sign,
            connect=to_servers.connect if to_servers is not None else None,
        )
        leader_requests = LeaderRequests(
            self._client,
            lambda: self._controller.registration.register_request(),
            config.broker_addr,
            config.namesrv_addr,
        )
        self._controller = BrokerController(
            config,
            self._store,
            self.clock,
            self._rng,
            self.call_soon,
            self._disk_usage,
            self._dledger.status,
            leader_requests.ask,
            self._dledger.wake,
            RouteRequests(self._client, config.namesrv_addr).ask if config.namesrv_addr else None,
        )
        self._remoting = RemotingServer(
            self._controller.pipeline,
            config.bind_address,
            config.listen_port,
            idle_seconds=config.server_channel_max_idle_time_seconds,
            unread_size_max=config.max_unread_bytes,
            connections_max=config.max_connections,
            admission_seconds=config.access.admission_seconds,
            tls=tls,
        )
        self._http: HttpEndpoint | None = None
        if config.http_port is not None:
            self._http = HttpEndpoint(config.http_address, config.http_port, self.status, self._metrics, tls)
        self._name_servers = [_NameServer(address) for address in config.namesrv_addr]
        self._told = self._controller.name_servers
        self._told.ask_now = self._register_soon

    def _sign(self, command: RemotingCommand) -> None:
        """What the broker asks by itself. What it passes on is signed by its sender."""
        credentials = self.config.access.inner_client_credentials
        if credentials is not None and PASSED_ON not in command.ext_fields:
            credentials.sign(command)

    def _disk_usage(self) -> tuple[int, int]:
        disk = os.statvfs(self.config.store.store_path_root_dir)
        return disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize

    def __str__(self) -> str:
        return str(self._dledger.replica)

    async def start(self) -> None:
        """Listens, joins the group, registers. Raises OSError when a port is taken."""
        self._loop = asyncio.get_running_loop()
        self._failure = self._loop.create_future()
        self._store.add_serving_listener(self._serving_changed)
        await self._remoting.start()
        if self._http is not None:
            await self._http.start()
        await self._dledger.start()
        await self._listen_for_vip_channels()
        for name_server in self._name_servers:
            name_server.task = self._loop.create_task(self._keep_registered(name_server))
        log.info(
            "%s broker started name=%s listen=%s", self, self.config.broker_name, self.config.broker_addr
        )

    async def _listen_for_vip_channels(self) -> None:
        """On the port to which 4.x clients with a VIP channel send; the last one, so that it takes no other's."""
        port = self.config.listen_port - VIP_PORT_DISTANCE
        if port < 1:
            return
        try:
            await self._remoting.listen_also(port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            log.warning("%s no VIP channel for clients of RocketMQ 4 port=%d: %s", self, port, reason)

    async def failed(self) -> str:
        """Waits for the reason why this broker must not go on."""
        assert self._failure is not None, "started"
        return await asyncio.shield(self._failure)

    async def stop(self) -> None:
        """Clean: another member leads if one can, and everything acknowledged, derived and exported is on disk."""
        if await self._dledger.hand_over():
            log.info("%s leadership handed over leader=%s", self, self._store.leader_id)
            await asyncio.sleep(LINGER_S)
        await self._leave(is_clean=True)
        self._dledger.replica.stop(self.clock())
        await self._store_jobs_done()
        self._store.stop()
        await self._dledger.stop()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, functools.partial(self._store.close, clean=True))
        self._jobs.close()
        self._lock.release()
        log.info("%s broker stopped", self)

    async def abort(self) -> None:
        """After a failure: leaves the files as a crash would."""
        await self._leave(is_clean=False)
        await self._dledger.close()
        await self._store_jobs_done()  # last: until it is closed, the log gives the store more to do
        self._store.close(clean=False)
        self._jobs.close()
        self._lock.release()

    async def _leave(self, *, is_clean: bool) -> None:
        for name_server in self._name_servers:
            if name_server.task is not None:
                name_server.task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await name_server.task
        if is_clean:
            await asyncio.gather(*(self._unregister(name_server) for name_server in self._name_servers))
        self._controller.stop()
        await self._remoting.close()
        await self._client.close()
        if self._http is not None:
            await self._http.close()
        self._has_left = True

    async def _store_jobs_done(self) -> None:
        while self._jobs_under_way:
            self._jobs_done.clear()
            await self._jobs_done.wait()

    def status(self) -> dict[str, Any]:
        """For people and scripts; plain JSON values."""
        store = self._store
        http_port = self._http.port if self._http is not None else None
        return {
            **self._dledger.status(),
            "pid": os.getpid(),
            "serving": store.serving,
            "reput": store.reads.applied_index,
            "reput_behind": store.reads.reput_behind,
            "listen": self.config.broker_addr,
            "http": join(self.config.http_address, http_port) if http_port is not None else None,
            "disk_full": store.retention.log.disk_full,
            "open_switches": list(self.config.open_switches),
            "store_dir": self.config.store.store_path_root_dir,
            "broker_name": self.config.broker_name,
            "cluster": self.config.broker_cluster_name,
        }

    def figures(self) -> Figures:
        """For programs that watch; what they mean is in metrics.py."""
        return {
            **self._dledger.figures(),
            **self._store.figures(),
            **self._controller.stats.figures(),
            **self._controller.waiting_replies.figures(),
            **self._remoting.figures(),
        }

    def _metrics(self) -> str:
        dledger = self._dledger.config
        return metrics_text(self.figures(), {"group": dledger.group, "id": dledger.self_id})

    # -- runtime of the store --------------------------------------------------------------------------------

    def submit(self, job: DiskJob) -> None:
        self._jobs_under_way += 1
        self._jobs.submit(job)

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1000

    def call_soon(self, step: Callable[[], None]) -> None:
        assert self._loop is not None, "requests come from its connections"
        self._loop.call_soon(step)

    def call_later(self, delay_ms: int, step: Callable[[], None]) -> None:
        assert self._loop is not None, "requests come from its connections"
        self._loop.call_later(delay_ms / 1000, step)

    def reput_wanted(self) -> None:
        if not self._reput_scheduled and self._loop is not None:
            self._reput_scheduled = True
            self._loop.call_soon(self._reput)

    def _reput(self) -> None:
        self._reput_scheduled = False
        try:
            self._store.reput_step(self.clock())
        except (StoreError, DiskError) as error:
            self._fail(f"dispatching failed: {error}")

    def _job_run(self, job: DiskJob, error: Exception | None) -> None:
        """In the store's thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._job_done, job, error)

    def _job_done(self, job: DiskJob, error: Exception | None) -> None:
        self._jobs_under_way -= 1
        try:
            self._store.job_done(job, error, self.clock())
        except (StoreError, DiskError) as failure:
            self._fail(f"a job of the store failed: {failure}")
        finally:
            # Whatever it was: a stop waits for this.
            self._jobs_done.set()
        self._dledger.wake()

    # -- time and trouble ------------------------------------------------------------------------------------

    def _tick(self, now_ms: int) -> int | None:
        """After a tick of the member. When the next one is to come, at the latest; None: when it likes."""
        if self._has_left:
            return None
        if now_ms < self._next_tick_ms:
            return self._next_tick_ms
        self._next_tick_ms = now_ms + TICK_INTERVAL_MS
        try:
            self._store.tick(now_ms)
        except (StoreError, DiskError) as error:
            self._fail(f"the store failed: {error}")
            return None
        for channel in self._controller.tick(now_ms):
            channel.close()
        if self._controller.registration.is_due(now_ms):
            self._told.changed()
        if now_ms >= self._next_status_log_ms:
            self._next_status_log_ms = now_ms + STATUS_LOG_INTERVAL_MS
            self._log_status()
        due = [
            due_ms for part in (self._store, self._controller) if (due_ms := part.due_ms(now_ms)) is not None
        ]
        if not due:
            return None
        due_ms = max(min(due), now_ms + 1)
        self._next_tick_ms = min(self._next_tick_ms, due_ms)
        return due_ms

    def _log_status(self) -> None:
        status = self._dledger.status()
        log.info(
            "%s leader=%s ledger=%s..%s committed=%s reput=%s synced=%s watermarks=%s serving=%s doubted=%s",
            self,
            status["leader"],
            status["ledger_begin"],
            status["ledger_end"],
            status["committed"],
            self._store.reads.applied_index,
            status["synced"],
            status["watermarks"],
            self._store.serving,
            status["doubted"],
        )
        if status["waits_for"]:
            log.warning("%s the group is not formed yet, waits_for=%s", self, ",".join(status["waits_for"]))
        elif status["election_obstacle"] is not None:
            log.warning("%s no leader: %s", self, status["election_obstacle"])
        if status["disk_obstacle"] is not None:
            log.warning("%s not fit to lead: %s", self, status["disk_obstacle"])

    def _fail(self, reason: str) -> None:
        log.critical("%s must stop: %s", self, reason)
        if self._failure is not None and not self._failure.done():
            self._failure.set_result(reason)

    # -- NameServers -----------------------------------------------------------------------------------------

    def _serving_changed(self, is_serving: bool) -> None:
        log.info("%s serving=%s", self, is_serving)
        self._told.changed()

    def _register_soon(self) -> None:
        for name_server in self._name_servers:
            name_server.wanted.set()

    def _connection_lost(self, address: str) -> None:
        """A NameServer that restarts knows nothing of us: it is told as soon as it is there, not a period later."""
        for name_server in self._name_servers:
            if name_server.address == address:
                name_server.wanted.set()

    def _asked_by_name_server(self, channel: Channel, command: RemotingCommand) -> None:
        """Somebody else has registered in this broker's place. All NameServers are told that it is here."""
        if command.code == RequestCode.CONFIRM_REGISTRATION:
            self._controller.registration.confirm(self._registration_confirmed, self.clock())

    def _registration_confirmed(self) -> None:
        for name_server in self._name_servers:
            name_server.is_confirmed = True
            name_server.wanted.set()

    async def _keep_registered(self, name_server: _NameServer) -> None:
        """One task per NameServer, so that a dead one delays no other."""
        registration = self._controller.registration
        timeout_s = self.config.register_broker_timeout_ms / 1000
        while True:
            name_server.wanted.clear()
            is_confirmed, name_server.is_confirmed = name_server.is_confirmed, False
            make_request = functools.partial(registration.register_request, is_confirmed=is_confirmed)
            change = self._told.newest_change
            answer = await self._ask(name_server, make_request, timeout_s)
            self._told.answered(name_server.address, change, name_server.fault)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REGISTER_RETRY_S if answer is None else None):
                    await name_server.wanted.wait()

    async def _unregister(self, name_server: _NameServer) -> None:
        await self._ask(name_server, self._controller.registration.unregister_request, UNREGISTER_TIMEOUT_S)

    async def _ask(
        self, name_server: _NameServer, make_request: Callable[[], RemotingCommand], timeout_s: float
    ) -> RemotingCommand | None:
        """The answer, None when there is none or it says no. Only changes are logged: it may go on for hours."""
        try:
            answer = await self._client.invoke(name_server.address, make_request(), timeout_s)
            fault = None if answer.code == ResponseCode.SUCCESS else f"code {answer.code}: {answer.remark}"
        except RemotingError as error:
            answer, fault = None, str(error)
        if fault is not None and fault != name_server.fault:
            log.warning("%s name server refuses or is away addr=%s: %s", self, name_server.address, fault)
        elif fault is None and name_server.fault is not None:
            log.info("%s name server is back addr=%s", self, name_server.address)
        name_server.fault = fault
        return answer if fault is None else None


class _NameServer:
    """What the broker keeps of one NameServer."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.wanted = asyncio.Event()
        self.is_confirmed = False  # this broker is what the next registration says
        self.fault: str | None = None
        self.task: asyncio.Task[None] | None = None


def short_pause() -> None:
    time.sleep(0.0001)


def local_hour(now_ms: int) -> int:
    return time.localtime(now_ms / 1000).tm_hour


async def run_broker(config: BrokerConfig) -> None:
    """Runs a broker until SIGTERM or SIGINT. Raises OSError when a port or the store is taken, SystemExit(1)
    when the store cannot be opened or the broker had to stop by itself; the reason is logged.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        log.info("stopping signal=%s", number.name)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    try:
        broker = Broker(config)
    except (DLedgerError, StoreError) as error:
        log.critical("broker does not start: %s", error)
        raise SystemExit(1) from None
    try:
        await broker.start()
    except BaseException:
        # Threads of a broker that is nobody's would keep the process from ending.
        await broker.abort()
        raise
    if config.open_switches:
        log.warning("%s %s", broker, open_warning(config.open_switches))
    failure = loop.create_task(broker.failed())
    stop_wanted = loop.create_task(stopped.wait())
    done, _ = await asyncio.wait((failure, stop_wanted), return_when=asyncio.FIRST_COMPLETED)
    stop_wanted.cancel()
    if failure in done:
        await broker.abort()
        raise SystemExit(1)
    failure.cancel()
    await broker.stop()
