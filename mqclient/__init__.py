"""An asyncio client of RocketMQ brokers, ours and Java's.

A producer, a consumer that is handed messages, one that polls for them, and what operators do.
"""

from auth.client_credentials import load_credentials
from auth.credentials import Credentials
from message.decoder import MessageExt
from mqclient.admin.access_admin import AccessAdmin
from mqclient.admin.admin import Admin
from mqclient.admin.admin_calls import AdminError
from mqclient.admin.broker_admin import BrokerAdmin
from mqclient.admin.group_admin import GroupAdmin
from mqclient.admin.message_admin import MessageAdmin
from mqclient.admin.namesrv_admin import NamesrvAdmin
from mqclient.admin.topic_admin import TopicAdmin
from mqclient.connecting import tls_from_file
from mqclient.consumer.allocate import (
    AVG,
    AVG_BY_CIRCLE,
    CONSISTENT_HASH,
    AllocateStrategy,
    by_config,
    by_consistent_hash,
    by_machine_room,
    by_machine_room_nearby,
)
from mqclient.consumer.consumer_config import ConsumeFromWhere, ConsumerConfig, MessageModel
from mqclient.consumer.group_member import OnAssignment
from mqclient.consumer.lite_pull_consumer import LitePullConsumer, OnTopicQueues
from mqclient.consumer.process_queue import ConsumeBatch
from mqclient.consumer.push_consumer import PushConsumer
from mqclient.consumer.simple_consumer import SimpleConsumer
from mqclient.consumer.subscription import Expression, MessageSelector, sql
from mqclient.errors import (
    AckError,
    BadAnswerError,
    BrokerResponseError,
    ClientClosedError,
    CommitError,
    LocalOffsetsError,
    MessageIllegalError,
    MQClientError,
    NoAnswerError,
    NoMasterError,
    OffsetIllegalError,
    QueueNotAssignedError,
    RequestTimeoutError,
    RouteNotFoundError,
    SendError,
)
from mqclient.message import Message
from mqclient.message_queue import MessageQueue
from mqclient.producer.producer import Producer
from mqclient.producer.producer_config import ProducerConfig
from mqclient.producer.queue_selector import QueueSelector, by_sharding_key
from mqclient.producer.send_pipeline import SendPipeline
from mqclient.producer.send_result import SendResult, SendStatus
from mqclient.producer.transaction_producer import (
    CheckListener,
    LocalTransaction,
    TransactionProducer,
    TransactionSendResult,
    TransactionState,
)

__all__ = [
    "AVG",
    "AVG_BY_CIRCLE",
    "CONSISTENT_HASH",
    "AccessAdmin",
    "AckError",
    "Admin",
    "AdminError",
    "AllocateStrategy",
    "BadAnswerError",
    "BrokerAdmin",
    "BrokerResponseError",
    "CheckListener",
    "ClientClosedError",
    "CommitError",
    "ConsumeBatch",
    "ConsumeFromWhere",
    "ConsumerConfig",
    "Credentials",
    "Expression",
    "GroupAdmin",
    "LitePullConsumer",
    "LocalOffsetsError",
    "LocalTransaction",
    "MQClientError",
    "Message",
    "MessageAdmin",
    "MessageExt",
    "MessageIllegalError",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "NamesrvAdmin",
    "NoAnswerError",
    "NoMasterError",
    "OffsetIllegalError",
    "OnAssignment",
    "OnTopicQueues",
    "Producer",
    "ProducerConfig",
    "PushConsumer",
    "QueueNotAssignedError",
    "QueueSelector",
    "RequestTimeoutError",
    "RouteNotFoundError",
    "SendError",
    "SendPipeline",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "TopicAdmin",
    "TransactionProducer",
    "TransactionSendResult",
    "TransactionState",
    "by_config",
    "by_consistent_hash",
    "by_machine_room",
    "by_machine_room_nearby",
    "by_sharding_key",
    "load_credentials",
    "sql",
    "tls_from_file",
]
