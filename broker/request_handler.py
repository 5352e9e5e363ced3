"""Hands a read's commands to their processors: all sends together, all pulls together, the rest one by one."""

from __future__ import annotations

import logging
from collections.abc import Callable

from broker.answers import Answers, RequestHandler, answer_error
from broker.client_channel import ClientChannel
from broker.pull_message_processor import PullMessageProcessor
from broker.send_message_processor import SendMessageProcessor
from disk.disk import DiskError
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.operator_requests import note_operator_request
from store.errors import StoreError

log = logging.getLogger(__name__)

SEND_CODES = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)
PULL_CODES = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
# Of all other requests. Their bodies are read and answered in one go, which must not take so long that a leader's
# followers elect another one: 4,096 groups of a heartbeat, 10,000 queues to lock.
BODY_SIZE_MAX = 1024 * 1024


class BrokerRequestHandler:
    """What remoting calls per read. Requests of different kinds in one read are not ordered among each other: a
    client that needs an order waits for the answer, and answers may always come in any order.
    """

    def __init__(
        self,
        sends: SendMessageProcessor,
        pulls: PullMessageProcessor,
        handlers: dict[int, RequestHandler],
        on_response: Callable[[ClientChannel, RemotingCommand], None],
        on_channel_closed: Callable[[ClientChannel], None],
        clock: Callable[[], int],
    ) -> None:
        self._sends = sends
        self._pulls = pulls
        self._handlers = handlers
        self._on_response = on_response
        self._on_channel_closed = on_channel_closed
        self._clock = clock

    def channel_opened(self, channel: ClientChannel) -> None:
        log.debug("channel opened addr=%s", channel.remote_address)

    def channel_resumed(self, channel: ClientChannel) -> None:
        self._pulls.resumed(channel, self._clock())

    def channel_closed(self, channel: ClientChannel) -> None:
        self._pulls.closed(channel)
        self._on_channel_closed(channel)

    def commands_received(self, channel: ClientChannel, commands: list[RemotingCommand]) -> None:
        now_ms = self._clock()
        for command in commands:
            # A response of code 10 to a request of ours would look like a send; the flag tells them apart.
            if command.code not in SEND_CODES or command.flag & 1:
                break
        else:
            self._sends.process(channel, commands, now_ms)
            return
        sends: list[RemotingCommand] = []
        pulls: list[RemotingCommand] = []
        others: list[RemotingCommand] = []
        for command in commands:
            if command.is_response:
                self._on_response(channel, command)
                continue
            if command.code in SEND_CODES:
                sends.append(command)
            elif command.code in PULL_CODES:
                pulls.append(command)
            else:
                others.append(command)
        if others:
            self._handle(channel, others, now_ms)
        if sends:
            self._sends.process(channel, sends, now_ms)
        if pulls:
            self._pulls.process(channel, pulls, now_ms)

    def _handle(self, channel: ClientChannel, commands: list[RemotingCommand], now_ms: int) -> None:
        answers = Answers(channel)
        for command in commands:
            if not channel.is_open:
                break  # its client took no answers, and had more than it may leave
            handler = self._handlers.get(command.code)
            if handler is None:
                answers.add(
                    command,
                    ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
                    f" request type {command.code} not supported",
                )
                continue
            if len(command.body) > BODY_SIZE_MAX:
                remark = f"body of {len(command.body)} bytes: {BODY_SIZE_MAX} are allowed"
                answers.add(command, ResponseCode.INVALID_PARAMETER, remark)
                continue
            note_operator_request(command, channel.remote_address)
            try:
                handler(answers, channel, command, now_ms)
            except (RemotingError, StoreError, DiskError) as error:
                answer_error(answers, channel, command, error)
            except Exception as error:
                # A defect of ours, and the other requests of this connection are no part of it.
                log.exception("request failed code=%d addr=%s", command.code, channel.remote_address)
                remark = f"failed: {type(error).__name__}: {error}"
                answers.add(command, ResponseCode.SYSTEM_ERROR, remark)
        answers.flush()
