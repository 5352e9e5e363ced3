"""Telemetry, Heartbeat and NotifyClientTermination: what clients are and send to, and whether they are still there.

A client that the proxy does not know, as after a restart, is served all the same. Its next settings make it known
again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from proxy.config import ProxyConfig
from proxy.grpc.call import Call, GrpcError, GrpcStatus
from proxy.messages.names import check_group, check_topic
from proxy.messages.settings import consumer_settings, producer_settings
from proxy.metadata import Metadata
from proxy.protocol.definition import ClientType, Code, Settings
from proxy.protocol.service import (
    HeartbeatRequest,
    HeartbeatResponse,
    NotifyClientTerminationRequest,
    NotifyClientTerminationResponse,
    TelemetryCommand,
)
from proxy.services.methods import client_id_of, parsed
from proxy.services.permissions import CONSUMERS, Permissions
from proxy.sessions import Sessions
from proxy.status import StatusError, status, status_of

log = logging.getLogger(__name__)

# Those of a client with thousands of topics are smaller than this.
COMMAND_SIZE_MAX: Final = 1024 * 1024
_SERVED: Final = CONSUMERS | {ClientType.PRODUCER}
# Refusals that a client is told in a message, which it can show. Others are gRPC errors, as with RocketMQ.
_TOLD: Final = frozenset(
    {Code.UNRECOGNIZED_CLIENT_TYPE, Code.TOO_MANY_REQUESTS, Code.UNAUTHORIZED, Code.FORBIDDEN}
)
# Codes of requests that are wrong: their gRPC status says that to try again is of no use.
_CLIENTS_FAULT: Final = range(Code.BAD_REQUEST, Code.INTERNAL_ERROR)


class SessionService:
    def __init__(
        self,
        config: ProxyConfig,
        sessions: Sessions,
        metadata: Metadata,
        permissions: Permissions,
        on_producers_changed: Callable[[], None],
    ) -> None:
        """`on_producers_changed` is called when producers have come or gone."""
        self._config = config
        self._sessions = sessions
        self._metadata = metadata
        self._permissions = permissions
        self._on_producers_changed = on_producers_changed
        self._is_ending = asyncio.Event()

    def end_streams(self) -> None:
        """End the Telemetry streams, because the proxy stops: clients then open them elsewhere at once."""
        self._is_ending.set()

    async def telemetry(self, call: Call) -> None:
        """Answer a client's settings, as often as it sends some. Questions to the client leave by the same stream."""
        call.send_headers()  # some clients wait for them before they say anything
        try:
            client_id = client_id_of(call)
        except StatusError as error:
            await call.send(TelemetryCommand(status=status_of(error)).SerializeToString())
            return
        ending = asyncio.ensure_future(self._is_ending.wait())
        try:
            while await self._answer_next(client_id, call, ending):
                pass
        except StatusError as error:
            if error.code in _TOLD:
                await call.send(TelemetryCommand(status=status_of(error)).SerializeToString())
                return
            grpc_status = GrpcStatus.INVALID_ARGUMENT if error.code in _CLIENTS_FAULT else GrpcStatus.INTERNAL
            raise GrpcError(
                grpc_status, f"process client telemetryCommand failed. {error.message}"
            ) from error
        finally:
            ending.cancel()
            self._sessions.stream_closed(client_id, call)

    async def _answer_next(self, client_id: str, call: Call, ending: asyncio.Future[Any]) -> bool:
        """Answer the client's next command. Returns False if it has sent all. Raises StatusError and GrpcError."""
        payload = await _receive(call, ending)
        if payload is None:
            return False
        if len(payload) > COMMAND_SIZE_MAX:
            raise GrpcError(
                GrpcStatus.INVALID_ARGUMENT,
                f"a command of {len(payload)} bytes: {COMMAND_SIZE_MAX} are allowed",
            )
        command = parsed(TelemetryCommand, payload)
        await self._permissions.telemetry(command, call)
        if command.WhichOneof("command") == "settings":
            answer = await self._settings_came(client_id, call, command.settings)
            del payload, command  # a client that does not read its answer holds no more than that
            await call.send(answer)
        return True

    async def _settings_came(self, client_id: str, call: Call, settings: Settings) -> bytes:
        """Keep what is needed of the settings, and return the answer to them. Raises StatusError and GrpcError."""
        kind = settings.WhichOneof("pub_sub")
        if kind is None:
            raise GrpcError(
                GrpcStatus.INVALID_ARGUMENT, "there is no publishing or subscription data in settings"
            )
        if settings.client_type not in _SERVED:
            raise _unrecognized(settings.client_type)
        if kind == "publishing":
            self._keep(
                client_id, call, settings, [check_topic(topic) for topic in settings.publishing.topics]
            )
            self._on_producers_changed()
            merged = producer_settings(settings, self._config)
        else:
            group = check_group(settings.subscription.group)
            topics = [check_topic(entry.topic) for entry in settings.subscription.subscriptions]
            self._keep(client_id, call, settings, ())
            config = await self._metadata.group_config(group, topics[0] if topics else "")
            merged = consumer_settings(settings, self._config, config)
        return TelemetryCommand(status=status(Code.OK), settings=merged).SerializeToString()

    def _keep(self, client_id: str, call: Call, settings: Settings, topics: Iterable[str]) -> None:
        before = self._sessions.get(client_id)
        if before is None or before.stream is not call:
            log.info(
                "client came client=%s type=%s group=%s peer=%s language=%s version=%s",
                client_id,
                ClientType.Name(settings.client_type),
                settings.subscription.group.name,
                call.peer,
                call.metadata.get("x-mq-language", ""),
                call.metadata.get("x-mq-client-version", ""),
            )
        now = asyncio.get_running_loop().time()
        self._sessions.settings_came(client_id, call, settings.client_type, topics, now)

    async def heartbeat(self, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
        client_id = client_id_of(call)
        session = self._sessions.get(client_id)
        known = session.client_type if session is not None else None
        client_type = request.client_type if known is None else known
        if client_type not in _SERVED:
            raise _unrecognized(client_type)
        if client_type in CONSUMERS:
            check_group(request.group)
        self._sessions.seen(client_id, asyncio.get_running_loop().time())
        return HeartbeatResponse(status=status(Code.OK))

    async def notify_client_termination(
        self, request: NotifyClientTerminationRequest, call: Call
    ) -> NotifyClientTerminationResponse:
        client_id = client_id_of(call)
        if request.HasField("group") and request.group.name:
            check_group(request.group)
        log.info("client ended client=%s group=%s", client_id, request.group.name)
        self._sessions.forget(client_id)
        self._on_producers_changed()
        return NotifyClientTerminationResponse(status=status(Code.OK))


async def _receive(call: Call, ending: asyncio.Future[Any]) -> bytes | None:
    """Wait for the client's next message. Raises GrpcError if `ending` is done before it comes."""
    receiving = asyncio.ensure_future(call.receive())
    try:
        await asyncio.wait({receiving, ending}, return_when=asyncio.FIRST_COMPLETED)
        if not receiving.done():
            raise GrpcError(GrpcStatus.UNAVAILABLE, "the proxy stops: open the stream again")
        return receiving.result()
    finally:
        receiving.cancel()


def _unrecognized(client_type: ClientType) -> StatusError:
    name = ClientType.Name(client_type) if client_type in ClientType.values() else str(client_type)
    return StatusError(
        Code.UNRECOGNIZED_CLIENT_TYPE,
        f"client type {name} is not served here: PRODUCER, PUSH_CONSUMER and SIMPLE_CONSUMER are",
    )
