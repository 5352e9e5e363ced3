"""What a client needs for each method, as in RocketMQ's access control: topics and groups that a request names.

A method without a check here cannot be put into the table (services/table.py).
"""

from __future__ import annotations

from proxy.access import Access, Need, belongs_to, looks_up, publishes, subscribes
from proxy.grpc.call import Call
from proxy.messages.names import check_group, check_topic
from proxy.protocol.definition import ClientType, Resource, Settings
from proxy.protocol.service import (
    AckMessageRequest,
    ChangeInvisibleDurationRequest,
    EndTransactionRequest,
    ForwardMessageToDeadLetterQueueRequest,
    HeartbeatRequest,
    NotifyClientTerminationRequest,
    QueryAssignmentRequest,
    QueryRouteRequest,
    RecallMessageRequest,
    ReceiveMessageRequest,
    SendMessageRequest,
    TelemetryCommand,
)

CONSUMERS = frozenset({ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER})


class Permissions:
    """Each method raises StatusError for a client that may not do that."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def query_route(self, request: QueryRouteRequest, call: Call) -> None:
        topic = check_topic(request.topic)
        await self._access.check(call, [looks_up(topic)], topic)

    async def query_assignment(self, request: QueryAssignmentRequest, call: Call) -> None:
        await self._consume(request.topic, request.group, call)

    async def telemetry(self, command: TelemetryCommand, call: Call) -> None:
        is_settings = command.WhichOneof("command") == "settings"
        await self._access.check(call, _needs_of(command.settings) if is_settings else ())

    async def heartbeat(self, request: HeartbeatRequest, call: Call) -> None:
        await self._be_there(request.group if request.client_type in CONSUMERS else None, call)

    async def notify_client_termination(self, request: NotifyClientTerminationRequest, call: Call) -> None:
        await self._be_there(request.group if request.group.name else None, call)

    async def send_message(self, request: SendMessageRequest, call: Call) -> None:
        topics = list(dict.fromkeys(check_topic(message.topic) for message in request.messages))
        needs = [publishes(topic) for topic in topics]
        await self._access.check(call, needs, topics[0] if topics else "")

    async def recall_message(self, request: RecallMessageRequest, call: Call) -> None:
        await self._publish(request.topic, call)

    async def end_transaction(self, request: EndTransactionRequest, call: Call) -> None:
        await self._publish(request.topic, call)

    async def receive_message(self, request: ReceiveMessageRequest, call: Call) -> None:
        await self._consume(request.message_queue.topic, request.group, call)

    async def ack_message(self, request: AckMessageRequest, call: Call) -> None:
        await self._consume(request.topic, request.group, call)

    async def change_invisible_duration(self, request: ChangeInvisibleDurationRequest, call: Call) -> None:
        await self._consume(request.topic, request.group, call)

    async def forward_message_to_dead_letter_queue(
        self, request: ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> None:
        await self._consume(request.topic, request.group, call)

    async def _publish(self, named: Resource, call: Call) -> None:
        topic = check_topic(named)
        await self._access.check(call, [publishes(topic)], topic)

    async def _consume(self, named: Resource, group: Resource, call: Call) -> None:
        topic = check_topic(named)
        await self._access.check(call, [subscribes(topic), belongs_to(check_group(group))], topic)

    async def _be_there(self, group: Resource | None, call: Call) -> None:
        await self._access.check(call, [] if group is None else [belongs_to(check_group(group))])


def _needs_of(settings: Settings) -> list[Need]:
    if settings.WhichOneof("pub_sub") == "publishing":
        return [publishes(check_topic(topic)) for topic in settings.publishing.topics]
    if settings.WhichOneof("pub_sub") == "subscription":
        topics = [subscribes(check_topic(entry.topic)) for entry in settings.subscription.subscriptions]
        return [belongs_to(check_group(settings.subscription.group)), *topics]
    return []
