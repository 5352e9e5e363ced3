"""Consumer groups' settings: the replicated table, and how a group comes into it by being used."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from broker.config.broker_config import BrokerConfig
from message.names import group_fault, is_system_group
from store.state.state_proposals import OnProposed
from store.state.table_configs import SubscriptionGroupConfig
from store.state.tables.subscription_group_table import DeleteSubscriptionGroup, PutSubscriptionGroup

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)


class SubscriptionGroupManager:
    def __init__(self, config: BrokerConfig, store: MessageStore) -> None:
        self.configure(config)
        self._store = store
        self._creating: set[str] = set()

    def configure(self, config: BrokerConfig) -> None:
        self._is_auto_created = config.auto_create_subscription_group

    def find(self, group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """A group's settings. One that is unknown and may be made gets the defaults at once, while its
        creation goes through the log; None when it is unknown and must not be made.
        """
        config = self._store.tables.subscription_group_table.get(group)
        if config is not None:
            return config
        if not self._is_auto_created and not is_system_group(group):
            return None
        if group_fault(group) is not None:
            return None
        config = SubscriptionGroupConfig(group_name=group)
        if self._store.serving and group not in self._creating:
            self._creating.add(group)
            log.info("group creation proposed group=%s", group)
            self.put(config, lambda status: self._creating.discard(group), now_ms)
        return config

    def put(self, config: SubscriptionGroupConfig, on_done: OnProposed, now_ms: int) -> None:
        """Proposes a group's settings, new or changed."""
        self._store.propose(PutSubscriptionGroup(config), on_done, now_ms)

    def delete(self, group: str, clean_offset: bool, on_done: OnProposed, now_ms: int) -> None:
        self._store.propose(DeleteSubscriptionGroup(group, clean_offset), on_done, now_ms)
