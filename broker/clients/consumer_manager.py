"""Consumer groups: which clients are in them right now, and what they subscribe.

Clients allocate queues among themselves; the broker only keeps the list that they allocate by and tells them
when it changes. Nothing here is replicated: each client sends heartbeats to every broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

import msgspec

from broker.clients.client_channel import ClientChannelInfo
from message.tags import SubscriptionData

log = logging.getLogger(__name__)

IdsChanged = Callable[[str, list[ClientChannelInfo]], None]


class ConsumerGroupInfo(msgspec.Struct):
    """One group. All clients of a group should subscribe the same; the newest subscription of a topic wins."""

    group: str
    consume_type: str
    message_model: str
    consume_from_where: str
    subscriptions: dict[str, SubscriptionData] = msgspec.field(default_factory=dict)
    channels: dict[int, ClientChannelInfo] = msgspec.field(default_factory=dict)  # by channel id
    fingerprint: int | None = None  # of the last heartbeat that had one
    is_notify_enabled: bool = True  # the group's setting at its last heartbeat

    def client_ids(self) -> list[str]:
        """Without repeats: a client may have two connections for a moment."""
        return list(dict.fromkeys(info.client_id for info in self.channels.values()))

    def update_channel(self, info: ClientChannelInfo) -> bool:
        """Whether the channel is new in the group."""
        known = self.channels.get(info.channel.id)
        if known is None:
            self.channels[info.channel.id] = info
            return True
        known.last_update_ms = info.last_update_ms
        known.client_id = info.client_id
        return False

    def update_subscriptions(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Whether a topic came or went. A newer expression for a known topic is taken without counting as a
        change: it moves no queue.
        """
        changed = False
        topics = set()
        for subscription in subscriptions:
            topics.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                changed = True
            if known is None or subscription.sub_version > known.sub_version:
                self.subscriptions[subscription.topic] = subscription
        for topic in [topic for topic in self.subscriptions if topic not in topics]:
            del self.subscriptions[topic]
            changed = True
        return changed


class ConsumerManager(msgspec.Struct):
    """Tells `ids_changed(group, channels)` whenever the members of a group should allocate again."""

    ids_changed: IdsChanged
    channel_expired_timeout_ms: int = 120_000
    groups: dict[str, ConsumerGroupInfo] = msgspec.field(default_factory=dict)

    def register_consumer(
        self,
        group: str,
        info: ClientChannelInfo,
        *,
        consume_type: str,
        message_model: str,
        consume_from_where: str,
        subscriptions: Iterable[SubscriptionData] | None,
        is_notify_enabled: bool,
    ) -> None:
        """Takes one group of a heartbeat; `subscriptions` is None in a heartbeat that repeats an earlier one."""
        group_info = self.groups.get(group)
        if group_info is None:
            group_info = ConsumerGroupInfo(group, consume_type, message_model, consume_from_where)
            self.groups[group] = group_info
        else:
            group_info.consume_type = consume_type
            group_info.message_model = message_model
            group_info.consume_from_where = consume_from_where
        group_info.is_notify_enabled = is_notify_enabled
        is_new = group_info.update_channel(info)
        changed = subscriptions is not None and group_info.update_subscriptions(subscriptions)
        if is_new:
            log.info(
                "consumer joined group=%s client=%s addr=%s",
                group,
                info.client_id,
                info.channel.remote_address,
            )
        if is_new or changed:
            self._ids_changed(group_info)

    def unregister_consumer(self, group: str, channel_id: int) -> None:
        group_info = self.groups.get(group)
        if group_info is not None and self._remove(group_info, channel_id):
            self._ids_changed(group_info)

    def channel_closed(self, channel_id: int) -> None:
        for group_info in list(self.groups.values()):
            if self._remove(group_info, channel_id):
                self._ids_changed(group_info)

    def expire(self, now_ms: int) -> list[ClientChannelInfo]:
        """Drops clients without heartbeats; the caller closes their channels."""
        expired = []
        for group_info in list(self.groups.values()):
            silent = [
                info
                for info in group_info.channels.values()
                if info.last_update_ms + self.channel_expired_timeout_ms < now_ms
            ]
            for info in silent:
                log.warning("consumer expired group=%s client=%s", group_info.group, info.client_id)
                self._remove(group_info, info.channel.id)
            if silent:
                expired += silent
                self._ids_changed(group_info)
        return expired

    def _ids_changed(self, group_info: ConsumerGroupInfo) -> None:
        """Each client of a broadcasting group consumes all queues, whoever else is there."""
        if group_info.is_notify_enabled and group_info.message_model != "BROADCASTING":
            self.ids_changed(group_info.group, list(group_info.channels.values()))

    def _remove(self, group_info: ConsumerGroupInfo, channel_id: int) -> bool:
        info = group_info.channels.pop(channel_id, None)
        if info is None:
            return False
        log.info("consumer left group=%s client=%s", group_info.group, info.client_id)
        if not group_info.channels:
            del self.groups[group_info.group]
        return True

    def client_ids(self, group: str) -> list[str]:
        group_info = self.groups.get(group)
        return group_info.client_ids() if group_info is not None else []

    def subscriptions(self, group: str) -> Mapping[str, SubscriptionData]:
        group_info = self.groups.get(group)
        return group_info.subscriptions if group_info is not None else {}
