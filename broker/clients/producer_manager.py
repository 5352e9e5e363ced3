"""Producer groups: which clients are in them, for checks of transactions, and where a client is reached that waits for
replies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from broker.clients.client_channel import ClientChannel, ClientChannelInfo

log = logging.getLogger(__name__)


class _Connection(msgspec.Struct):
    """`client_id`: by its last heartbeat; a connection speaks for one client."""

    client_id: str
    groups: set[str] = msgspec.field(default_factory=set)


class ProducerManager(msgspec.Struct):
    """Tells `client_came(client_id, now_ms)` of a client that was not connected before, or is so by another channel."""

    channel_expired_timeout_ms: int = 120_000
    client_came: Callable[[str, int], None] = lambda client_id, now_ms: None
    groups: dict[str, dict[int, ClientChannelInfo]] = msgspec.field(
        default_factory=dict
    )  # group -> channel id
    _connections: dict[int, _Connection] = msgspec.field(default_factory=dict)  # by channel id
    _channels: dict[str, ClientChannel] = msgspec.field(
        default_factory=dict
    )  # of its last heartbeat, by client id

    def channel_of(self, client_id: str) -> ClientChannel | None:
        """Where the client is reached; None: it is in no producer group here."""
        return self._channels.get(client_id)

    def register_producer(self, group: str, info: ClientChannelInfo) -> None:
        channel, client_id = info.channel, info.client_id
        channels = self.groups.setdefault(group, {})
        if channel.id not in channels:
            log.info("producer joined group=%s client=%s addr=%s", group, client_id, channel.remote_address)
        channels[channel.id] = info
        connection = self._connections.setdefault(channel.id, _Connection(client_id))
        connection.groups.add(group)
        if connection.client_id != client_id:
            self._forget(connection.client_id, channel.id)
            connection.client_id = client_id
        if self._channels.get(client_id) is not channel:
            self._channels[client_id] = channel
            self.client_came(client_id, info.last_update_ms)

    def unregister_producer(self, group: str, channel_id: int) -> None:
        channels = self.groups.get(group, {})
        channels.pop(channel_id, None)
        if not channels:
            self.groups.pop(group, None)
        connection = self._connections.get(channel_id)
        if connection is None:
            return
        connection.groups.discard(group)
        if not connection.groups:
            del self._connections[channel_id]
            self._forget(connection.client_id, channel_id)

    def channel_closed(self, channel_id: int) -> None:
        connection = self._connections.get(channel_id)
        for group in list(connection.groups) if connection is not None else ():
            self.unregister_producer(group, channel_id)

    def _forget(self, client_id: str, channel_id: int) -> None:
        channel = self._channels.get(client_id)
        if channel is not None and channel.id == channel_id:
            del self._channels[client_id]

    def expire(self, now_ms: int) -> list[ClientChannelInfo]:
        """Drops clients without heartbeats; the caller closes their channels."""
        expired = [
            (group, info)
            for group, channels in self.groups.items()
            for info in channels.values()
            if info.last_update_ms + self.channel_expired_timeout_ms < now_ms
        ]
        for group, info in expired:
            log.warning("producer expired group=%s client=%s", group, info.client_id)
            self.unregister_producer(group, info.channel.id)
        return [info for _, info in expired]
