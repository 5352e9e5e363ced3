"""Producer groups: which clients are in them, for checks of transactions, and where a client is reached that waits for
replies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from broker.clients.client_channel import ClientChannel, ClientChannelInfo

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProducerManager:
    """Tells `client_came(client_id, now_ms)` of a client that was not connected before, or is so by another channel."""

    channel_expired_timeout_ms: int = 120_000
    client_came: Callable[[str, int], None] = lambda client_id, now_ms: None
    groups: dict[str, dict[int, ClientChannelInfo]] = field(default_factory=dict)  # group -> channel id
    _channels: dict[str, ClientChannel] = field(
        default_factory=dict
    )  # by client id; that of the last heartbeat

    def channel_of(self, client_id: str) -> ClientChannel | None:
        """Where the client is reached; None: it is in no producer group here."""
        return self._channels.get(client_id)

    def register_producer(self, group: str, info: ClientChannelInfo) -> None:
        channels = self.groups.setdefault(group, {})
        known = channels.get(info.channel.id)
        if known is None:
            channels[info.channel.id] = info
            log.info(
                "producer joined group=%s client=%s addr=%s",
                group,
                info.client_id,
                info.channel.remote_address,
            )
        else:
            known.last_update_ms = info.last_update_ms
        if self._channels.get(info.client_id) is not info.channel:
            self._channels[info.client_id] = info.channel
            self.client_came(info.client_id, info.last_update_ms)

    def unregister_producer(self, group: str, channel_id: int) -> None:
        channels = self.groups.get(group, {})
        info = channels.pop(channel_id, None)
        if not channels:
            self.groups.pop(group, None)
        if info is None or any(channel_id in others for others in self.groups.values()):
            return
        channel = self._channels.get(info.client_id)
        if channel is not None and channel.id == channel_id:
            del self._channels[info.client_id]

    def channel_closed(self, channel_id: int) -> None:
        for group in list(self.groups):
            self.unregister_producer(group, channel_id)

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
