"""The proxy's process: its parts put together, started and stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from contextlib import suppress
from typing import Final

from proxy.access import Access
from proxy.arrivals import Arrivals
from proxy.brokers import Brokers
from proxy.config import ProxyConfig
from proxy.grpc.server import ALPN, GrpcServer
from proxy.metadata import Metadata
from proxy.popped import PoppedMessages
from proxy.pops import Pops
from proxy.renewals import Renewals
from proxy.services.ack import AckService
from proxy.services.dead_letter import DeadLetterService
from proxy.services.permissions import Permissions
from proxy.services.producer import ProducerService
from proxy.services.receive import ReceiveService
from proxy.services.route import RouteService
from proxy.services.session import SessionService
from proxy.services.table import method_table
from proxy.services.transaction import TransactionService
from proxy.sessions import Sessions
from remoting.address import is_loopback, join
from remoting.certificates import self_made_tls
from remoting.client import Connect
from remoting.security_switches import open_warning
from remoting.tls import ServerTls, TlsError, TlsFiles, TlsMode
from remoting.tls_settings import client_tls

log = logging.getLogger(__name__)

# Metadata that RocketMQ's proxy sets itself. What a client puts there is not believed.
HIDDEN_METADATA: Final = (
    "rpc-remote-address",
    "rpc-local-address",
    "x-mq-channel-id",
    "x-mq-authorization-ak",
    "x-mq-rpc-name",
)
_SCAN_S: Final = 10.0


class Proxy:
    """Invariant: after `close` no task of this object is left, and no connection."""

    def __init__(
        self, config: ProxyConfig, *, tls: ServerTls | None = None, connect: Connect | None = None
    ) -> None:
        """Without `tls` the port takes plaintext only. Raises TlsError."""
        self._config = config
        to_servers = client_tls(config.tls)
        if to_servers is not None:
            connect = connect or to_servers.connect
        self._has_tls = tls is not None
        self.sessions = Sessions(config.channel_expired_timeout_ms / 1000)
        self._brokers = Brokers(
            config.namesrv_addr,
            on_request=lambda channel, command: self._transactions.request_received(channel, command),
            on_route_change=lambda: self._transactions.register_soon(),
            connect=connect,
            credentials=config.inner_client_credentials,
        )
        access = Access(self._brokers, is_on=config.authentication_enabled)
        permissions = Permissions(access)
        metadata = Metadata(
            self._brokers,
            topic_fresh_s=config.topic_config_cache_refresh_seconds,
            group_fresh_s=config.subscription_group_config_cache_refresh_seconds,
        )
        self._transactions = TransactionService(config, self._brokers, self.sessions, metadata, access)
        self._session_service = SessionService(
            config, self.sessions, metadata, permissions, self._transactions.register_soon
        )
        popped = PoppedMessages(self._brokers)
        self._renewals = Renewals(config, popped)
        self._arrivals = Arrivals(self._brokers)
        pops = Pops(self._brokers, self._arrivals, popped, config.invisible_time_ms_when_clear)
        self.sessions.on_client_gone = self._renewals.client_gone
        self.handlers = method_table(
            route=RouteService(config, self._brokers, metadata),
            session=self._session_service,
            producer=ProducerService(config, self._brokers, metadata),
            transaction=self._transactions,
            receive=ReceiveService(config, metadata, pops, popped, self._renewals, self.sessions),
            ack=AckService(config, popped, self._renewals),
            dead_letter=DeadLetterService(popped, self._renewals, access),
            permissions=permissions,
        )
        self._server = GrpcServer(
            self.handlers,
            config.bind_address,
            config.grpc_server_port,
            tls=tls,
            hidden_metadata=HIDDEN_METADATA,
            message_size_max=config.grpc_max_inbound_message_size,
            idle_seconds=config.grpc_client_idle_time_ms / 1000,
            accept_proxy_protocol=config.accept_proxy_protocol,
        )

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Listens. Raises OSError when the port is taken."""
        await self._server.start()
        self._brokers.start()
        self._renewals.start()
        self._brokers.tasks.spawn(self._transactions.keep_registered())
        self._brokers.tasks.spawn(self._expire_sessions())
        log.info(
            "proxy started listen=%s tls=%s namesrv=%s advertised=%s",
            join(self._config.bind_address, self.port),
            "and plaintext" if self._has_tls else "no",
            ";".join(self._config.namesrv_addr),
            self._config.advertised_endpoint or "as clients address it",
        )

    async def close(self) -> None:
        self._session_service.end_streams()
        self._arrivals.end_waiting()
        await self._server.stop(self._config.grpc_shutdown_time_seconds)
        await self._renewals.close()
        await self._arrivals.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await self._transactions.close()
        await self._brokers.close()

    async def _expire_sessions(self) -> None:
        while True:
            await asyncio.sleep(_SCAN_S)
            for client_id in self.sessions.expire(asyncio.get_running_loop().time()):
                log.info("client expired client=%s", client_id)


def tls_of(config: ProxyConfig) -> ServerTls | None:
    """Make the TLS side of the port as the conf asks; None: the port takes plaintext only. Raises TlsError."""
    mode = config.tls_server_mode
    if mode is TlsMode.DISABLED:
        return None
    if (
        config.tls_key_path is not None
        and config.tls_cert_path is not None
        and not config.tls_test_mode_enable
    ):
        files = TlsFiles(
            key_path=config.tls_key_path,
            cert_path=config.tls_cert_path,
            key_password=config.tls_key_password,
        )
        return ServerTls(mode, files, alpn=ALPN)
    is_self_made = config.tls_test_mode_enable
    if is_self_made is None:
        is_self_made = is_loopback(config.bind_address)
    if is_self_made:
        advertised = config.advertised_endpoint
        return self_made_tls(mode, alpn=ALPN, hosts=() if advertised is None else (advertised.host,))
    missing = "give tlsKeyPath and tlsCertPath, or tlsTestModeEnable=true for a self-made certificate"
    if mode is TlsMode.ENFORCING:
        raise TlsError(f"tls.server.mode=enforcing, and no certificate: {missing}")
    log.warning("no TLS, which clients of several languages insist on: %s", missing)
    return None


async def run_proxy(config: ProxyConfig, tls: ServerTls | None, *, is_beside_broker: bool = False) -> None:
    """Run a proxy until SIGTERM or SIGINT. Raises OSError when the port is taken.

    With `is_beside_broker`, standard input is a pipe of the broker: when it ends, so does the proxy.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop(number: signal.Signals) -> None:
        log.info("stopping signal=%s", number.name)
        stopped.set()

    def input_ended() -> None:
        log.info("stopping: the broker beside has ended")
        loop.remove_reader(sys.stdin)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    if is_beside_broker:
        loop.add_reader(sys.stdin, input_ended)
    proxy = Proxy(config, tls=tls)
    await proxy.start()
    if config.open_switches:
        log.warning("proxy %s", open_warning(config.open_switches))
    try:
        await stopped.wait()
    finally:
        await proxy.close()
        log.info("proxy stopped")
