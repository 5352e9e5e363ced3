"""QUERY_ASSIGNMENT (400): which queues a client is to read, and whether by pulls or by pops; the mode that an operator
has set for its group (401, 402).

Java's push consumer asks for it with clientRebalance=false. So an operator turns its group to pops and back, with its
position kept: both move the group's offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.answers import Request, answer_applied
from broker.clients.consumer_manager import ConsumerManager
from broker.config.broker_config import BrokerConfig
from broker.registration.route_requests import AskRoute
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from broker.waiting.waiting_pops import ANY_QUEUE
from message.names import RETRY_GROUP_TOPIC_PREFIX
from message.queue_shares import averagely, by_circle
from remoting.bodies.bodies import MessageQueue, TopicRouteData
from remoting.bodies.pop_bodies import (
    MessageQueueAssignment,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from remoting.codes import ResponseCode
from remoting.headers.headers import CommandHeader
from store.state.table_configs import PERM_READ
from store.state.tables.message_request_mode_table import POP, PULL, SetMessageRequestMode

if TYPE_CHECKING:
    from store.message_store import MessageStore


class QueryAssignmentProcessor:
    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        ask_route: AskRoute | None,
    ) -> None:
        """Without `ask_route` a topic has the queues that this broker has."""
        self.config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._ask_route = ask_route
        self._table = store.tables.message_request_mode_table

    def query_assignment(
        self, request: Request[CommandHeader], body: QueryAssignmentRequestBody, now_ms: int
    ) -> None:
        if self._ask_route is None:
            self._answer(request, body, self._own_queues(body.topic))
        else:
            self._ask_route(
                body.topic, lambda route: self._answer(request, body, _queues_of(body.topic, route))
            )

    def _own_queues(self, topic: str) -> list[MessageQueue]:
        config = self._topics.select(topic)
        count = config.read_queue_nums if config is not None else 0
        name = self.config.broker_name
        return [MessageQueue(topic=topic, broker_name=name, queue_id=number) for number in range(count)]

    def _answer(
        self, request: Request[CommandHeader], body: QueryAssignmentRequestBody, queues: list[MessageQueue]
    ) -> None:
        mode = self._mode_of(body.topic, body.consumer_group)
        assigned = self._assigned(body, mode, queues)
        answer = QueryAssignmentResponseBody()
        if assigned is not None:
            answer.message_queue_assignments = [
                MessageQueueAssignment(message_queue=queue, mode=mode.mode) for queue in assigned
            ]
        request.answer(body=answer)

    def _mode_of(self, topic: str, group: str) -> SetMessageRequestMode:
        found = self._table.modes.get((topic, group))
        if found is not None:
            return found
        mode = (
            PULL if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else self.config.default_message_request_mode
        )
        return SetMessageRequestMode(topic, group, mode, self.config.default_pop_share_queue_num)

    def _assigned(
        self, body: QueryAssignmentRequestBody, mode: SetMessageRequestMode, queues: list[MessageQueue]
    ) -> list[MessageQueue] | None:
        """None where it cannot be said: the client stays as it is."""
        if not queues:
            return None
        if body.message_model == "BROADCASTING" or not self.config.server_load_balancer_enable:
            return queues
        allocate = _STRATEGIES.get(body.strategy_name)
        client_ids = sorted(self._consumers.client_ids(body.consumer_group))
        if not client_ids or allocate is None:
            return None
        if mode.mode != POP:
            return allocate(body.client_id, queues, client_ids)
        share = mode.pop_share_queue_num
        if share <= 0 or share >= len(client_ids) - 1:
            names = dict.fromkeys(queue.broker_name for queue in queues)
            return [MessageQueue(topic=body.topic, broker_name=name, queue_id=ANY_QUEUE) for name in names]
        if body.client_id not in client_ids:
            return []
        index = client_ids.index(body.client_id)
        if len(client_ids) > len(queues):
            return [queues[index % len(queues)]]
        sharing = [client_ids[(index + number) % len(client_ids)] for number in range(share + 1)]
        found = [queue for client_id in sharing for queue in allocate(client_id, queues, client_ids)]
        return list(dict.fromkeys(found))

    # -- modes -------------------------------------------------------------------------------------------------

    def set_mode(
        self, request: Request[CommandHeader], body: SetMessageRequestModeRequestBody, now_ms: int
    ) -> None:
        topic, group = body.topic, body.consumer_group
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            request.answer(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        elif self._topics.select(topic) is None:
            request.answer(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        elif self._groups.find(group, now_ms) is None:
            request.answer(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        else:
            change = SetMessageRequestMode(topic, group, body.mode, body.pop_share_queue_num)
            self._store.propose(change, answer_applied(request), now_ms)

    def get_modes(self, request: Request[CommandHeader], now_ms: int) -> None:
        modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        for (topic, group), mode in self._table.modes.items():
            modes.setdefault(topic, {})[group] = SetMessageRequestModeRequestBody(
                topic=topic,
                consumer_group=group,
                mode=mode.mode,
                pop_share_queue_num=mode.pop_share_queue_num,
            )
        request.answer(body=MessageRequestModeSerializeWrapper(message_request_mode_map=modes))


def _queues_of(topic: str, route: TopicRouteData | None) -> list[MessageQueue]:
    """In the order of RocketMQ's: by broker name, then by number."""
    datas = route.queue_datas if route is not None else []
    return [
        MessageQueue(topic=topic, broker_name=queues.broker_name, queue_id=number)
        for queues in sorted(datas, key=lambda queues: queues.broker_name)
        if queues.perm & PERM_READ
        for number in range(queues.read_queue_nums)
    ]


# Of RocketMQ's, those that need to know no more.
_STRATEGIES: Final = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
