"""What this broker tells the NameServers, and when.

Each NameServer is told the whole topic table: at start, every period, when a topic or the role changed. The term of
a group goes along as stateVersion, by which a NameServer refuses a leader that was replaced; a plain broker says 0,
since what it counts are its own starts. Pure: the shell sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from broker.config.broker_config import BrokerConfig
from broker.registration.told_name_servers import ToldNameServers
from broker.topics.topic_config_manager import TopicConfigManager
from remoting.bodies.bodies import MASTER_ID, DataVersion
from remoting.bodies.topic_bodies import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    body_crc32,
)
from remoting.codes import RequestCode
from remoting.frame.command import RemotingCommand, request
from remoting.headers import headers
from store.state.table_configs import PERM_READ, PERM_WRITE

if TYPE_CHECKING:
    from store.message_store import MessageStore

READ_WRITE = PERM_READ | PERM_WRITE


class _Registered(msgspec.Struct, frozen=True):
    """What a registration depends on."""

    broker_id: int
    term: int
    counter: int
    timestamp: int


class Registration:
    """Says when to register, and with what. Invariant: only a serving leader registers as id 0."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        name_servers: ToldNameServers,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._name_servers = name_servers
        self._told: _Registered | None = None
        self._next_ms = 0
        # NameServers take topics, and with them permissions, only by a new version.
        self._configured_count = 0

    def configure(self, config: BrokerConfig) -> None:
        self._config = config
        self._configured_count += 1
        self._name_servers.changed()

    @property
    def broker_id(self) -> int:
        """0 for the serving leader; for others the number in the self id, plus one."""
        group = self._config.dledger
        return MASTER_ID if self._store.serving or group is None else group.member_number + 1

    def is_due(self, now_ms: int) -> bool:
        """Whether something changed or the period is over; says so once."""
        version = self._store.tables.topic_config_table.data_version
        present = _Registered(
            self.broker_id, self._store.term, version.counter + self._configured_count, version.timestamp
        )
        if present == self._told and now_ms < self._next_ms:
            return False
        self._told = present
        self._next_ms = now_ms + self._config.register_name_server_period_ms
        return True

    def confirm(self, on_confirmed: Callable[[], None], now_ms: int) -> None:
        """Calls `on_confirmed` if this broker is what it registered as: a leader asks its majority first, which a
        replaced one that does not know of it yet cannot win.
        """
        term = self._store.term
        if not self._store.serving:
            on_confirmed()
            return

        def on_done(refusal: str | None) -> None:
            if refusal is None and self._store.serving and self._store.term == term:
                on_confirmed()

        self._store.read_index_waits.ask(on_done, now_ms)

    def register_request(self, *, is_confirmed: bool = False) -> RemotingCommand:
        config = self._config
        body = self._body().encode()
        # A group without HA has no HA address; RocketMQ's field is required.
        header = headers.RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=config.broker_addr,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=config.broker_addr,
            broker_id=self.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=body_crc32(body),
            confirmed=True if is_confirmed else None,
        )
        return request(RequestCode.REGISTER_BROKER, headers.to_ext_fields(header), body, opaque=0)

    def unregister_request(self) -> RemotingCommand:
        config = self._config
        header = headers.UnRegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=config.broker_addr,
            cluster_name=config.broker_cluster_name,
            broker_id=self.broker_id,
        )
        return request(RequestCode.UNREGISTER_BROKER, headers.to_ext_fields(header), opaque=0)

    def _body(self) -> RegisterBrokerBody:
        config = self._config
        version = self._store.tables.topic_config_table.data_version
        permission = config.broker_permission
        table = {
            name: TopicConfig(
                topic_name=name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=topic.perm if permission & READ_WRITE == READ_WRITE else topic.perm & permission,
                topic_filter_type=topic.topic_filter_type,
                topic_sys_flag=topic.topic_sys_flag,
                order=topic.order,
                attributes=dict(topic.attributes),
            )
            for name, topic in self._topics.all_topics().items()
        }
        return RegisterBrokerBody(
            topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
                data_version=DataVersion(
                    timestamp=version.timestamp,
                    counter=version.counter + self._configured_count,
                    state_version=max(self._store.term, 0) if config.dledger is not None else 0,
                ),
                topic_config_table=table,
                mapping_data_version=DataVersion(timestamp=0, counter=0, state_version=0),
                topic_queue_mapping_info_map={},
                topic_queue_mapping_detail_map={},
            )
        )
