"""Producer groups: which clients are in them. Transaction checks will ask here for one to turn to."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from broker.clients.client_channel import ClientChannelInfo

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ProducerManager:
    channel_expired_timeout_ms: int = 120_000
    groups: dict[str, dict[int, ClientChannelInfo]] = field(default_factory=dict)  # group -> channel id

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

    def unregister_producer(self, group: str, channel_id: int) -> None:
        channels = self.groups.get(group, {})
        channels.pop(channel_id, None)
        if not channels:
            self.groups.pop(group, None)

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
