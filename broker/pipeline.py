"""The way of each request from a read to its processor: grouped by lane, checked, noted, header and JSON body read.

What holds for all requests hooks in here: limits and permissions today; statistics and traces when they come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from auth.authentication import AccessRefused
from auth.signature import ACCESS_KEY
from broker.access.access_check import AccessCheck, RequestAccess, Sender
from broker.access.needs import Need
from broker.answers import Answers, AnyRequest, Request, answer_bad_request, answer_error
from broker.clients.client_channel import ClientChannel
from broker.registry import BatchHandler, BatchRequestType, Lane, RequestType
from broker.request_turns import CallSoon, RequestTurns
from disk.disk import DiskError
from remoting.bodies.bodies import RemotingBody
from remoting.codes import ResponseCode
from remoting.connection_limits import ADMITTED
from remoting.errors import RemotingError, RemotingHeaderError
from remoting.frame.command import RemotingCommand
from remoting.headers import headers
from remoting.operator_requests import note_operator_request
from store.errors import StoreError

log = logging.getLogger(__name__)

# Of what does not come in batches and is no message. Bodies are read and answered in one go, which must not take so
# long that a leader's followers elect another one: 4,096 groups of a heartbeat, 10,000 queues to lock.
BODY_SIZE_MAX = 1024 * 1024

# A code that does not come in batches has no handler for these.
_NO_BATCH: tuple[BatchHandler, set[int]] = (lambda channel, commands, now_ms: None, set())

# (request, handle, now_ms): calls `handle(now_ms)` when its turn has come, or answers by itself.
RunOnLane = Callable[[AnyRequest, Callable[[int], None], int], None]
# The same for a change that is audited, with its JSON body, if it has one.
RunAudited = Callable[[AnyRequest, RemotingBody | None, Callable[[int], None], int], None]


class RequestPipeline:
    """What remoting calls per read. Requests of different kinds in one read are not ordered among each other: a
    client that needs an order waits for the answer, and answers may always come in any order.
    """

    def __init__(
        self,
        batch_types: Sequence[BatchRequestType],
        types: Sequence[RequestType],
        access: AccessCheck,
        lanes: Mapping[Lane, RunOnLane],
        run_audited: RunAudited,
        wake: Callable[[], None],
        on_response: Callable[[ClientChannel, RemotingCommand], None],
        on_channel_resumed: Callable[[ClientChannel, int], None],
        on_channel_closed: Callable[[ClientChannel], None],
        clock: Callable[[], int],
        call_soon: CallSoon,
    ) -> None:
        """`lanes` has all but Lane.HERE. `wake`: lets the next tick come soon, for some requests go on in ticks."""
        self.batch_types = {batch_type.code.value: batch_type for batch_type in batch_types}
        self.types = {request_type.code.value: request_type for request_type in types}
        count = len(self.batch_types.keys() | self.types.keys())
        assert count == len(batch_types) + len(types), "a request code has one row"
        # By code: the handler and all its codes.
        self._batches = {
            code: (row.handler, {other.code.value for other in batch_types if other.handler == row.handler})
            for code, row in self.batch_types.items()
        }
        self._access = access
        self._lanes = lanes
        self._run_audited = run_audited
        self._on_response = on_response
        self._on_channel_resumed = on_channel_resumed
        self._on_channel_closed = on_channel_closed
        self._clock = clock
        self._turns = RequestTurns(self._handle, wake, clock, call_soon)

    def needs_of(self, code: int) -> tuple[tuple[Need, ...], bool] | None:
        """What a request needs, and whether it is administration."""
        if row := self.types.get(code):
            return row.needs, row.is_administration
        batch_row = self.batch_types.get(code)
        return None if batch_row is None else (batch_row.needs, False)

    def channel_opened(self, channel: ClientChannel) -> None:
        log.debug("channel opened addr=%s", channel.remote_address)

    def channel_resumed(self, channel: ClientChannel) -> None:
        self._on_channel_resumed(channel, self._clock())

    def channel_closed(self, channel: ClientChannel) -> None:
        self._turns.closed(channel)
        self._on_channel_closed(channel)

    def commands_received(self, channel: ClientChannel, commands: list[RemotingCommand]) -> None:
        if not commands:
            return
        now_ms = self._clock()
        handler, codes = self._batches.get(commands[0].code, _NO_BATCH)
        for command in commands:
            # A response of code 10 to a request of ours would look like a send; the flag tells them apart.
            if command.code not in codes or command.flag & 1:
                break
        else:
            self._handle_batch(handler, channel, commands, now_ms)
            return
        batches: dict[BatchHandler, list[RemotingCommand]] = {}
        others: list[RemotingCommand] = []
        for command in commands:
            handler, codes = self._batches.get(command.code, _NO_BATCH)
            if command.is_response:
                self._on_response(channel, command)
            elif codes:
                batches.setdefault(handler, []).append(command)
            else:
                others.append(command)
        if others:
            self._turns.take(channel, others)
        for handler, batch in batches.items():
            self._handle_batch(handler, channel, batch, now_ms)

    def _handle_batch(
        self, handler: BatchHandler, channel: ClientChannel, commands: list[RemotingCommand], now_ms: int
    ) -> None:
        if not self._access.is_open:
            answers = Answers(channel)
            commands = [command for command in commands if self._is_admitted(command, channel, answers)]
            answers.flush()
        if commands:
            handler(channel, commands, now_ms)

    def _is_admitted(self, command: RemotingCommand, channel: ClientChannel, answers: Answers) -> bool:
        """For a batch's handler, which reads headers by itself. What it would make of one that cannot be read here is
        not known, so such a one is refused.
        """
        row = self.batch_types[command.code]
        try:
            sender = self._access.sender_of(command, channel.remote_address)
            channel.attributes[ADMITTED] = True
            if self._access.reads_headers:
                header = headers.decode(row.header, command.ext_fields)
                self._access.check(command.code, row.needs, False, sender, header, None)
        except AccessRefused as refused:
            _answer_refused(answers, channel, command, refused)
            return False
        except RemotingHeaderError as error:
            answer_bad_request(answers, channel, command, error)
            return False
        return True

    def _handle(
        self, channel: ClientChannel, answers: Answers, command: RemotingCommand, now_ms: int
    ) -> None:
        request_type = self.types.get(command.code)
        if request_type is None:
            remark = f" request type {command.code} not supported"
            answers.add(command, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        elif len(command.body) > BODY_SIZE_MAX and not request_type.has_raw_body:
            remark = f"body of {len(command.body)} bytes: {BODY_SIZE_MAX} are allowed"
            answers.add(command, ResponseCode.INVALID_PARAMETER, remark)
        else:
            try:
                sender = self._access.sender_of(command, channel.remote_address)
                channel.attributes[ADMITTED] = True
                if request_type.is_noted:
                    note_operator_request(command, channel.remote_address)
                self._admit(request_type, command, channel, answers, sender, now_ms)
            except AccessRefused as refused:
                _answer_refused(answers, channel, command, refused)
            except RemotingError as error:
                answer_bad_request(answers, channel, command, error)
            except Exception as error:
                # A defect of ours, and the other requests of this connection are no part of it.
                log.exception("request failed code=%d addr=%s", command.code, channel.remote_address)
                answers.add(command, ResponseCode.SYSTEM_ERROR, f"failed: {type(error).__name__}: {error}")

    def _admit(
        self,
        request_type: RequestType,
        command: RemotingCommand,
        channel: ClientChannel,
        answers: Answers,
        sender: Sender,
        now_ms: int,
    ) -> None:
        """Raises AccessRefused, RemotingError."""
        code, needs = command.code, request_type.needs
        header = headers.decode(request_type.header, command.ext_fields)
        body = None if request_type.body is None else request_type.body.decode(command.body)
        self._access.check(code, needs, request_type.is_administration, sender, header, body)
        request = Request(command, header, channel, answers, RequestAccess(self._access, code, needs, sender))
        if body is None:
            handle = partial(_guarded, request, partial(request_type.handler, request))
        else:
            handle = partial(_guarded, request, partial(request_type.handler, request, body))
        if request_type.is_audited:
            handle = partial(_guarded, request, partial(self._run_audited, request, body, handle))
        if request_type.lane is Lane.HERE:
            handle(now_ms)
        else:
            self._lanes[request_type.lane](request, handle, now_ms)


def _guarded(request: AnyRequest, run: Callable[[int], None], now_ms: int) -> None:
    """Answers the request, if `run` fails."""
    try:
        run(now_ms)
    except (RemotingError, StoreError, DiskError) as error:
        answer_error(request, error)
    except Exception as error:
        # A defect of ours, and the other requests of this connection are no part of it.
        code, address = request.code, request.channel.remote_address
        log.exception("request failed code=%d addr=%s", code, address)
        request.answer(ResponseCode.SYSTEM_ERROR, f"failed: {type(error).__name__}: {error}")


def _answer_refused(
    answers: Answers, channel: ClientChannel, command: RemotingCommand, refused: AccessRefused
) -> None:
    log.warning(
        "refused code=%d user=%.100r addr=%s rule=%r remark=%.500r",
        *(
            command.code,
            command.ext_fields.get(ACCESS_KEY),
            channel.remote_address,
            refused.rule,
            str(refused),
        ),
        extra={"per_connection": True},
    )
    answers.add(command, ResponseCode.NO_PERMISSION, str(refused))
