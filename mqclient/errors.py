"""What can go wrong for a client, and what the caller may conclude from it.

`definite`: surely not done; sending again cannot make a duplicate. Everything else is unknown: the message may be
stored or not. `retriable`: another attempt may succeed without the caller changing anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from message.decoder import MessageExt
from mqclient.message_queue import MessageQueue
from remoting.codes import ResponseCode
from remoting.errors import RemotingError

# Refused before anything was done; another broker, or this one a moment later, may do it.
NOT_NOW_CODES = frozenset(
    {
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.POLLING_FULL,
    }
)
# Not refused by rule but failed on the way: it may be done all the same.
UNKNOWN_CODES = frozenset({ResponseCode.SYSTEM_ERROR, ResponseCode.GO_AWAY})


class MQClientError(Exception):
    """Base of all errors that a request of this client can end in."""

    definite = False
    retriable = False


class RouteNotFoundError(MQClientError):
    """No NameServer knows the topic, or none of them answered."""

    definite = True
    retriable = True


class TopicUnknownError(RouteNotFoundError):
    """A NameServer answered that it does not know the topic, and no other one knows it."""


class NoMasterError(MQClientError):
    """The route names no broker that takes writes: the group is electing, or all of it is down."""

    definite = True
    retriable = True


class MessageIllegalError(MQClientError):
    """The message breaks a rule that the client can check: topic name, empty body, size, property characters."""

    definite = True


class ClientClosedError(MQClientError):
    """The producer or consumer is closed, or was never started. Not `definite` for what a close broke off."""

    definite = True


class LocalOffsetsError(MQClientError):
    """The offsets file of a broadcasting consumer cannot be read or written, or another consumer uses it."""


class NoAnswerError(MQClientError):
    """A broker or NameServer could not be asked, or did not answer in time.

    `definite`: the request surely did not leave. `retriable` holds for all but requests that do not fit into a frame.
    """

    def __init__(self, error: RemotingError) -> None:
        super().__init__(str(error) or type(error).__name__)
        self.definite = error.definite
        self.retriable = error.retriable


class BadAnswerError(MQClientError):
    """A broker or NameServer answered something that cannot be read: what was asked for may be done all the same."""


class BrokerResponseError(MQClientError):
    """A broker or NameServer answered with another code than success: `code`, `remark`, `address`.

    Not `definite` are SYSTEM_ERROR and GO_AWAY, which tell of failures on the way. `retriable` are these, and the
    refusals of a server that is busy or does not serve (yet).
    """

    def __init__(self, code: int, remark: str, address: str) -> None:
        super().__init__(f"{address} answered {code}: {remark.strip()}{_hint(code)}")
        self.code = code
        self.remark = remark
        self.address = address
        self.definite = code not in UNKNOWN_CODES
        self.retriable = code in NOT_NOW_CODES or code in UNKNOWN_CODES


def _hint(code: int) -> str:
    if code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        return ""
    # Ports of the two are easily taken for each other.
    return "; is it a broker where a NameServer is asked for, or the other way round?"


class CommitError(MQClientError):
    """Offsets of some queues were not committed, or their brokers did not say so; those of the others were.

    `failed`: queue to what went wrong. It is safe to commit once more.
    """

    def __init__(self, failed: Mapping[MessageQueue, MQClientError]) -> None:
        queue, error = next(iter(failed.items()))
        super().__init__(
            f"offsets of {len(failed)} queues not committed; queue {queue.queue_id} of {queue.topic} "
            f"on {queue.broker_name}: {error}"
        )
        self.failed = failed
        self.definite = all(error.definite for error in failed.values())
        self.retriable = all(error.retriable for error in failed.values())


class AckError(MQClientError):
    """Some messages were not acknowledged, or their brokers did not say so: `messages`. They may come again. It is safe
    to acknowledge them once more.
    """

    def __init__(self, messages: Sequence[MessageExt], error: MQClientError) -> None:
        super().__init__(f"{len(messages)} messages not acknowledged: {error}")
        self.messages = messages
        self.definite = error.definite
        self.retriable = error.retriable


class QueueNotAssignedError(MQClientError):
    """The queue is not one that this consumer reads now: never, or not since the last rebalance."""

    definite = True


class OffsetIllegalError(MQClientError):
    """The offset lies outside of what the queue holds."""

    definite = True


class RequestTimeoutError(MQClientError):
    """No reply came in time to a request that was sent: it may be worked on or not, now or later."""


class SendError(MQClientError):
    """A send that ended without an acknowledgement, after all its attempts.

    `attempts` counts the requests written to a broker. `definite` holds only if every one of them was surely not
    stored; then `code` is the last refusal (-1: no broker answered).
    """

    def __init__(self, text: str, *, definite: bool, retriable: bool, attempts: int, code: int = -1) -> None:
        super().__init__(text)
        self.definite = definite
        self.retriable = retriable
        self.attempts = attempts
        self.code = code
