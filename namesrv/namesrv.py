"""A NameServer process: socket, clock, signals and the kvConfig file around the pure processor."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from pathlib import Path

from namesrv.kv_config_manager import KVConfigManager
from namesrv.namesrv_access import NamesrvAccess
from namesrv.namesrv_config import NamesrvConfig, shown_settings
from namesrv.processor import NamesrvProcessor
from namesrv.route_info_manager import RouteInfoManager
from remoting.address import join
from remoting.connection_limits import ADMISSION_SECONDS
from remoting.errors import RemotingBodyError
from remoting.frame.command import RemotingCommand
from remoting.security_switches import open_warning
from remoting.server import Channel, RemotingServer
from remoting.tls_settings import server_tls

log = logging.getLogger(__name__)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Namesrv:
    """Owns the tables and the port. Life times are counted on the monotonic clock."""

    def __init__(self, config: NamesrvConfig) -> None:
        """Raises TlsError for a certificate that cannot be used."""
        self._config = config
        self._routes = RouteInfoManager()
        self._kv = KVConfigManager()
        self._server = RemotingServer(
            self,
            config.bind_address,
            config.listen_port,
            idle_seconds=config.server_channel_max_idle_time_seconds,
            connections_max=config.max_connections,
            admission_seconds=ADMISSION_SECONDS if config.authentication_enabled else 0.0,
            tls=server_tls(config.tls),
        )
        self._processor = NamesrvProcessor(
            self._routes, self._kv, shown_settings(config), self._server.find_channel, NamesrvAccess(config)
        )
        self._scan_handle: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Binds and listens. Raises OSError, and RemotingBodyError for a kvConfig file that cannot be read."""
        self._read_kv_config()
        await self._server.start()
        self._schedule_scan()
        log.info("namesrv started listen=%s", join(self._config.bind_address, self.port))

    async def close(self) -> None:
        if self._scan_handle is not None:
            self._scan_handle.cancel()
        await self._server.close()

    def channel_opened(self, channel: Channel) -> None:
        pass

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        self._processor.process(channel, commands, _now_ms())
        if self._kv.is_dirty:
            self._write_kv_config()

    def channel_resumed(self, channel: Channel) -> None:
        pass

    def channel_closed(self, channel: Channel) -> None:
        self._routes.channel_closed(channel.id)

    def _schedule_scan(self) -> None:
        delay_s = self._config.scan_not_active_broker_interval_ms / 1000
        self._scan_handle = asyncio.get_running_loop().call_later(delay_s, self._scan)

    def _scan(self) -> None:
        expired = set(self._routes.expire(_now_ms()))
        for channel in self._server.channels:
            if channel.id in expired:
                channel.close()
        self._schedule_scan()

    def _read_kv_config(self) -> None:
        path = self._config.kv_config_path
        if path is not None and Path(path).exists():
            try:
                self._kv.load(Path(path).read_bytes())
            except RemotingBodyError as error:
                raise RemotingBodyError(f"{path}: {error}") from None

    def _write_kv_config(self) -> None:
        """Rare and small, so it is done on the loop."""
        self._kv.is_dirty = False
        path = self._config.kv_config_path
        if path is None:
            return
        written = Path(path + ".tmp")
        try:
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_bytes(self._kv.encode())
            written.replace(path)
        except OSError as error:
            # Whoever sent the change has been answered, and the next one writes all of them.
            log.error("key-value pairs are in memory only file=%s reason=%s", path, error.strerror)


async def run_namesrv(config: NamesrvConfig) -> None:
    """Runs a NameServer until SIGTERM or SIGINT. Raises OSError when the port is taken, TlsError."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        log.info("stopping signal=%s", number.name)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    namesrv = Namesrv(config)
    await namesrv.start()
    if config.open_switches:
        log.warning("namesrv %s", open_warning(config.open_switches))
    try:
        await stopped.wait()
    finally:
        await namesrv.close()
        log.info("namesrv stopped")
