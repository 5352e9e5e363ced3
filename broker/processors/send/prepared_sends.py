"""Sends that begin a transaction: which of them are taken, and what becomes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.config.broker_config import BrokerConfig
from broker.processors.send.send_batch import SendRefused
from broker.topics.topic_config_manager import TopicConfigManager
from message import names
from remoting.codes import ResponseCode
from store.put_message import PutMessage
from store.services.half_message import HALF_TOPIC_BYTES, prepared
from store.state.table_configs import PERM_READ, PERM_WRITE, TopicConfig

if TYPE_CHECKING:
    from store.message_store import MessageStore

_TOPICS: Final = (names.TRANS_HALF_TOPIC, names.TRANS_OP_HALF_TOPIC, names.TRANS_CHECK_MAX_TIME_TOPIC)


class PreparedSends:
    def __init__(self, config: BrokerConfig, store: MessageStore, topics: TopicConfigManager) -> None:
        self.config = config
        self._store = store
        self._topics = topics
        # What is on its way into the log: it waits there, or the read that is worked on has brought it. None: at the
        # read's first prepared message it is looked up.
        self.coming_count: int | None = None
        self._are_halves_alone = False  # that were counted

    def prepared(self, message: PutMessage) -> PutMessage:
        """The message as it waits for the end of its transaction."""
        return prepared(message)

    def check(self, now_ms: int) -> None:
        """Raises SendRefused. Has the topics made that transactions need; nothing waits for that."""
        if self.config.reject_transaction_message:
            remark = f"the broker[{self.config.broker_ip1}] sending transaction message is forbidden"
            raise SendRefused(ResponseCode.NO_PERMISSION, remark)
        self._count_in()
        for topic in _TOPICS:
            if self._topics.select(topic) is None:
                config = TopicConfig(topic, 1, 1, PERM_READ | PERM_WRITE)
                self._topics.create(config, lambda is_created: None, now_ms)

    def _count_in(self) -> None:
        """Raises SendRefused above the limit of undecided transactions."""
        gather = self._store.gather
        refusal_of = self._store.services.transaction_service.refusal_of_prepared
        if self.coming_count is None:
            self.coming_count, self._are_halves_alone = gather.count, False
        refusal = refusal_of(self.coming_count)
        if refusal is not None and not self._are_halves_alone:
            # To tell halves from the others takes a look at all that wait: once a read, and near the limit alone.
            self.coming_count += gather.count_of(HALF_TOPIC_BYTES) - gather.count
            self._are_halves_alone = True
            refusal = refusal_of(self.coming_count)
        if refusal is not None:
            raise SendRefused(ResponseCode.SYSTEM_BUSY, refusal)
        self.coming_count += 1
