"""Sends that begin a transaction: which of them are taken, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.config.broker_config import BrokerConfig
from broker.processors.send.send_batch import SendRefused
from broker.topics.topic_config_manager import TopicConfigManager
from message import names
from remoting.codes import ResponseCode
from store.put_message import PutMessage
from store.services.half_message import prepared
from store.state.table_configs import PERM_READ, PERM_WRITE, TopicConfig

if TYPE_CHECKING:
    from store.message_store import MessageStore

_TOPICS: Final = (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC)


class PreparedSends:
    def __init__(self, config: BrokerConfig, store: MessageStore, topics: TopicConfigManager) -> None:
        self.config = config
        self._store = store
        self._topics = topics

    def prepared(self, message: PutMessage) -> PutMessage:
        """The message as it waits for the end of its transaction."""
        return prepared(message)

    def check(self, now_ms: int) -> None:
        """Raises SendRefused. Has the topics made that transactions need; nothing waits for that."""
        if self.config.reject_transaction_message:
            remark = f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        if (refusal := self._store.services.transaction_service.refusal_of_prepared()) is not None:
            raise SendRefused(ResponseCode.SYSTEM_BUSY, refusal)
        for topic in _TOPICS:
            if self._topics.select(topic) is None:
                config = TopicConfig(topic, 1, 1, PERM_READ | PERM_WRITE)
                self._topics.create(config, lambda is_created: None, now_ms)
