"""Answers to the requests of one read: in one write or a few while it is worked on, each by itself later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic

import msgspec

from broker.access.access_check import RequestAccess, Sender
from broker.clients.client_channel import ClientChannel
from broker.registration.told_name_servers import ToldNameServers
from disk.disk import DiskError
from remoting.bodies.bodies import RemotingBody
from remoting.codes import ResponseCode
from remoting.errors import RemotingError
from remoting.frame.command import RemotingCommand, encode_response
from remoting.headers.headers import HeaderT
from store.errors import StoreError
from store.state.state_proposals import ProposeStatus
from store.state.table import StateChange

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

WRITE_SIZE = 256 * 1024  # bytes of answers to one client, before it is seen whether it takes them


class Answers:
    """Invariant: nothing is written for a oneway request."""

    __slots__ = ("_channel", "_frames", "_size")

    def __init__(self, channel: ClientChannel) -> None:
        self._channel = channel
        self._frames: list[bytes] | None = []
        self._size = 0  # bytes of `_frames`

    def add(
        self,
        command: RemotingCommand,
        code: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        if command.is_oneway:
            return
        frame = encode_response(command.opaque, command.serialize_type, code, ext_fields, body, remark)
        if self._frames is None:
            self._channel.write(frame)
            return
        self._frames.append(frame)
        self._size += len(frame)
        if self._size >= WRITE_SIZE:
            self._channel.write(b"".join(self._frames))
            self._frames.clear()
            self._size = 0

    def flush(self) -> None:
        """The read is worked off; what is answered from now on is written at once."""
        frames, self._frames = self._frames, None
        if frames:
            self._channel.write(b"".join(frames))


class Request(msgspec.Struct, Generic[HeaderT]):
    """One request of a client that may make it, its header read, and where the answer goes."""

    command: RemotingCommand  # as it came: for the pipeline and its lanes, not for processors
    header: HeaderT
    channel: ClientChannel
    answers: Answers
    access: RequestAccess

    @property
    def code(self) -> int:
        return self.command.code

    @property
    def ext_fields(self) -> dict[str, str]:
        """All that came, also what the header does not know: for a request that is passed on."""
        return self.command.ext_fields

    @property
    def body(self) -> bytes | memoryview:
        return self.command.body

    @property
    def client_language(self) -> str:
        return self.command.language.name

    @property
    def client_version(self) -> int:
        return self.command.version

    @property
    def is_oneway(self) -> bool:
        return self.command.is_oneway

    @property
    def sender(self) -> Sender:
        return self.access.sender

    def refusal_of_topic(self, topic: str) -> str | None:
        """Why the sender may not ask this of a topic that the request does not name; None: they may."""
        return self.access.refusal_of_topic(topic)

    def answer(
        self,
        code: int = 0,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: RemotingBody | bytes = b"",
    ) -> None:
        data = body if isinstance(body, bytes) else body.encode()
        self.answers.add(self.command, code, remark, ext_fields, data)


AnyRequest = Request[Any]  # of whatever header


_FAILURES = {
    ProposeStatus.NOT_LEADER: (
        ResponseCode.SERVICE_NOT_AVAILABLE,
        "this member does not serve as leader now; nothing was changed",
    ),
    ProposeStatus.UNKNOWN: (
        ResponseCode.SYSTEM_ERROR,
        "outcome unknown: this member stopped leading; the change may or may not be made",
    ),
    ProposeStatus.REFUSED: (
        ResponseCode.INVALID_PARAMETER,
        "the change is too large for one state record; nothing was changed",
    ),
    ProposeStatus.MEMBER_OUTDATED: (
        ResponseCode.SYSTEM_ERROR,
        "a member of the group does not know this table, or is away: upgrade it or remove it; nothing was changed",
    ),
}


def answer_applied(
    request: AnyRequest, on_applied: Callable[[], None] | None = None
) -> Callable[[ProposeStatus], None]:
    """Answers a request that changes a replicated table when the change has an outcome; by `on_applied` if that is
    given and the change is made.
    """
    succeed = on_applied or (lambda: request.answer())

    def on_done(status: ProposeStatus) -> None:
        if status is ProposeStatus.APPLIED:
            succeed()
        else:
            request.answer(*_FAILURES[status])

    return on_done


def answer_told(request: AnyRequest, name_servers: ToldNameServers) -> Callable[[], None]:
    """Answers a request whose change clients see by their NameServers: once those know, too, or will not soon."""

    def on_applied() -> None:
        name_servers.changed()
        name_servers.wait(lambda remark: request.answer(remark=remark))

    return on_applied


def answer_bad_request(
    answers: Answers, channel: ClientChannel, command: RemotingCommand, error: RemotingError
) -> None:
    log.warning("bad request code=%d addr=%s: %s", command.code, channel.remote_address, error)
    answers.add(command, ResponseCode.SYSTEM_ERROR, str(error))


def answer_error(request: AnyRequest, error: RemotingError | StoreError | DiskError) -> None:
    """What ended the work on a request: it says or asks what cannot be, or the store cannot be read."""
    if isinstance(error, RemotingError):
        answer_bad_request(request.answers, request.channel, request.command, error)
    else:
        # Damage ends this member at its next tick (store/message_store.py); the client asks the next leader.
        log.error("request failed code=%d error=%s", request.code, error)
        request.answer(ResponseCode.SYSTEM_ERROR, f"the store cannot be read: {error}")


def propose_each(
    store: MessageStore,
    changes: Sequence[StateChange],
    on_done: Callable[[Sequence[ProposeStatus]], None],
    now_ms: int,
) -> None:
    """Calls `on_done` once, when each of the changes has its outcome; with all of these, in no order."""
    statuses: list[ProposeStatus] = []

    def one_done(status: ProposeStatus) -> None:
        statuses.append(status)
        if len(statuses) == len(changes):
            on_done(statuses)

    if not changes:
        on_done(statuses)
    for change in changes:
        store.propose(change, one_done, now_ms)


def answer_all_applied(
    request: AnyRequest, on_applied: Callable[[], None] | None = None
) -> Callable[[Sequence[ProposeStatus]], None]:
    """Answers a request that makes several changes: by `on_applied`, if that is given, when all are applied; else says
    how many are, and what became of the others.
    """
    succeed = on_applied or (lambda: request.answer())

    def on_done(statuses: Sequence[ProposeStatus]) -> None:
        failed = [item for item in statuses if item is not ProposeStatus.APPLIED]
        if failed and len(set(statuses)) == 1:
            request.answer(*_FAILURES[failed[0]])
        elif failed:
            # Of a part of them it may be said that nothing was changed, of the request it may not.
            made = len(statuses) - len(failed)
            remark = f"{made} of {len(statuses)} changes are made; the first of the others: {_FAILURES[failed[0]][1]}"
            request.answer(ResponseCode.SYSTEM_ERROR, remark)
        else:
            succeed()

    return on_done


def propose_all(
    store: MessageStore,
    changes: Sequence[StateChange],
    request: AnyRequest,
    now_ms: int,
    on_applied: Callable[[], None] | None = None,
) -> None:
    """Makes several changes for one request, and answers it as answer_all_applied() does."""
    propose_each(store, changes, answer_all_applied(request, on_applied), now_ms)
