"""The table of MessagingService's methods: the classes of request and response, and the service method that answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from proxy.grpc.call import Call, GrpcError, GrpcStatus, Handler
from proxy.protocol import service as v2
from proxy.services.ack import AckService
from proxy.services.dead_letter import DeadLetterService
from proxy.services.methods import SERVICE, server_stream, unary
from proxy.services.permissions import Permissions
from proxy.services.producer import ProducerService
from proxy.services.receive import ReceiveService
from proxy.services.route import RouteService
from proxy.services.session import SessionService
from proxy.services.transaction import TransactionService

# Methods of the API that are not served, with what a client can do instead.
NOT_SERVED: Final[Mapping[str, str]] = {
    "PullMessage": "receive with ReceiveMessage, or pull with a client that speaks remoting",
    "UpdateOffset": "acknowledge with AckMessage, or set offsets with mq admin",
    "GetOffset": "mq admin shows the offsets of groups",
    "QueryOffset": "mq admin shows the offsets of queues",
    "SyncLiteSubscription": "there are no lite topics here: subscribe to topics",
}


def method_table(
    *,
    route: RouteService,
    session: SessionService,
    producer: ProducerService,
    transaction: TransactionService,
    receive: ReceiveService,
    ack: AckService,
    dead_letter: DeadLetterService,
    permissions: Permissions,
) -> dict[str, Handler]:
    """Handlers by path."""
    rows: dict[str, Handler] = {
        "QueryRoute": unary(
            v2.QueryRouteRequest, v2.QueryRouteResponse, route.query_route, permissions.query_route
        ),
        "QueryAssignment": unary(
            v2.QueryAssignmentRequest,
            v2.QueryAssignmentResponse,
            route.query_assignment,
            permissions.query_assignment,
        ),
        "Telemetry": session.telemetry,
        "Heartbeat": unary(
            v2.HeartbeatRequest, v2.HeartbeatResponse, session.heartbeat, permissions.heartbeat
        ),
        "NotifyClientTermination": unary(
            v2.NotifyClientTerminationRequest,
            v2.NotifyClientTerminationResponse,
            session.notify_client_termination,
            permissions.notify_client_termination,
        ),
        "SendMessage": unary(
            v2.SendMessageRequest, v2.SendMessageResponse, producer.send_message, permissions.send_message
        ),
        "RecallMessage": unary(
            v2.RecallMessageRequest,
            v2.RecallMessageResponse,
            producer.recall_message,
            permissions.recall_message,
        ),
        "EndTransaction": unary(
            v2.EndTransactionRequest,
            v2.EndTransactionResponse,
            transaction.end_transaction,
            permissions.end_transaction,
        ),
        "ReceiveMessage": server_stream(
            v2.ReceiveMessageRequest,
            v2.ReceiveMessageResponse,
            receive.receive_message,
            permissions.receive_message,
        ),
        "AckMessage": unary(
            v2.AckMessageRequest, v2.AckMessageResponse, ack.ack_message, permissions.ack_message
        ),
        "ChangeInvisibleDuration": unary(
            v2.ChangeInvisibleDurationRequest,
            v2.ChangeInvisibleDurationResponse,
            ack.change_invisible_duration,
            permissions.change_invisible_duration,
        ),
        "ForwardMessageToDeadLetterQueue": unary(
            v2.ForwardMessageToDeadLetterQueueRequest,
            v2.ForwardMessageToDeadLetterQueueResponse,
            dead_letter.forward_message_to_dead_letter_queue,
            permissions.forward_message_to_dead_letter_queue,
        ),
    }
    for name, instead in NOT_SERVED.items():
        rows[name] = _not_served(name, instead)
    return {SERVICE + name: handler for name, handler in rows.items()}


def _not_served(name: str, instead: str) -> Handler:
    async def handle(call: Call) -> None:
        raise GrpcError(GrpcStatus.UNIMPLEMENTED, f"{name} is not served here: {instead}")

    return handle
