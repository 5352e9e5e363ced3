"""Reads a range of a queue from its broker: record after record, through changes of the leader.

A range is committed (message_offset.py), so a broker that does not have all of it is behind, moving or away: that is
waited for. What a broker says to be gone is a loss. Where the messages stand dense, several pulls are under way.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from typing import Final

from message.record_layout import QUEUE_OFFSET_AT
from message.sys_flag import pull_sys_flag
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.patience import NotNowError, Patience
from pyspark_dledger.wire.pull_options import PullOptions
from pyspark_dledger.wire.queue_range import Queue, QueueRange
from pyspark_dledger.wire.read_errors import DataLossError, PullRefusedError
from pyspark_dledger.wire.topic_route import find_in_route, leaders_of
from remoting.blocking_connection import BlockingConnection
from remoting.bodies.bodies import TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingError, RemotingProtocolError
from remoting.frame.command import RemotingCommand

log = logging.getLogger(__name__)

_COUNT_MAX: Final = 1024  # asked for with the first pull; the broker's own limit is mostly lower
_UNDER_WAY_MAX: Final = 8  # pulls
_PULL_TIMEOUT_S: Final = 10.0
# It leads no more, does not serve yet, has too much to do, or stumbled: another moment, or another leader.
_NOT_NOW: Final = frozenset(
    {
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.GO_AWAY,
    }
)
_HAVE_BOUNDS: Final = frozenset(
    {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND}
)


class QueueReader:
    """Reads one range. `records` is walked through once; `lost` is then what was passed over by the user's wish."""

    def __init__(self, options: PullOptions, part: QueueRange) -> None:
        self.lost: list[QueueRange] = []
        self._options = options
        self._part = part
        self._position = part.start
        self._connection: BlockingConnection | None = None
        self._under_way: deque[tuple[int, int, int]] = deque()  # opaque, offset, count
        self._answers: dict[int, RemotingCommand] = {}
        self._step = 0  # messages that one pull brings; 0: not known
        self._fields = {
            "consumerGroup": options.consumer_group,
            "topic": part.queue.topic,
            "queueId": str(part.queue.queue_id),
            "sysFlag": str(
                pull_sys_flag(commit_offset=False, suspend=False, subscription=True, class_filter=False)
            ),
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": options.expression,
            "subVersion": "0",
            "expressionType": options.expression_type,
            "bname": part.queue.broker,
        }

    def records(self) -> Iterator[bytes]:
        """Whole records, some at a time. A record may be a batch that begins before the range or ends after it.

        Raises ReadError.
        """
        patience = Patience(self._options.timeout_ms)
        while self._position < self._part.end:
            before = self._position
            try:
                records = self._taken(*self._next_answer())
            except (RemotingError, NotNowError) as error:
                self.close()
                patience.pause(f"{self._part.queue}: nothing came from offset {before} on", error)
                continue
            if self._position > before:
                patience.refresh()
            if records:
                yield records

    def _next_answer(self) -> tuple[RemotingCommand, int]:
        """To the pull at the position, and how many messages that asked for."""
        connection = self._connected()
        offset = self._position
        if self._under_way:
            _, offset, count = self._under_way[-1]
            offset += count
        room = _UNDER_WAY_MAX if self._step else 1
        while len(self._under_way) < room and offset < self._part.end:
            count = min(self._step or _COUNT_MAX, self._part.end - offset)
            fields = self._fields | {"queueOffset": str(offset), "maxMsgNums": str(count)}
            opaque = connection.send(RequestCode.PULL_MESSAGE, fields)
            self._under_way.append((opaque, offset, count))
            offset += count
        opaque, _, count = self._under_way.popleft()
        while (answer := self._answers.pop(opaque, None)) is None:
            received = connection.receive(_PULL_TIMEOUT_S)
            self._answers[received.opaque] = received
        return answer, count

    def _taken(self, answer: RemotingCommand, count: int) -> bytes:
        """Moves the position on. Returns the records, none where the filter wanted none."""
        code = answer.code
        if code in _HAVE_BOUNDS:
            self._check_begin(_number(answer, "minOffset"))
        if code in _NOT_NOW or code == ResponseCode.PULL_NOT_FOUND:
            raise NotNowError(f"{self._address} answered {_said(answer)}")
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._judge_moved(answer)
            return b""
        if code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
            self._refuse(answer)
        reached = _number(answer, "nextBeginOffset")
        if reached <= self._position:
            raise NotNowError(f"{self._address} does not go on from offset {self._position}: {_said(answer)}")
        if self._options.wants_all:
            first = _first_offset(answer) if code == ResponseCode.SUCCESS else reached
            if first > self._position:
                # Brokers pass over a message whose data file is gone, before their bounds say so.
                self._pass_over(first, f"{self._address} has nothing before {first}")
                return b""
            brought = reached - self._position
            if not self._step or brought < count:
                self._step = brought
        self._go_to(reached)
        return bytes(answer.body) if code == ResponseCode.SUCCESS else b""

    def _go_to(self, offset: int) -> None:
        self._position = offset
        if self._under_way and self._under_way[0][1] != offset:
            # The pulls under way count on another place. Their answers are passed over when they come.
            self._under_way.clear()
        if not self._under_way:
            self._answers.clear()

    def _check_begin(self, begin: int) -> None:
        """Raises DataLossError. An expired offset is answered as moved. In a topic that was made again a broker goes on
        with the first message there is, since those before belong to a topic that is no more.
        """
        if begin > self._position:
            raise DataLossError(
                "topic made again", self._part.queue, self._position, min(begin, self._part.end),
                f"the topic that has the name now begins at {begin}. Begin a new query with a new checkpoint",
            )  # fmt: skip

    def _judge_moved(self, answer: RemotingCommand) -> None:
        """Raises DataLossError."""
        begin = _number(answer, "minOffset")
        if not self._position < begin:
            raise DataLossError(
                "topic made again", self._part.queue, self._position, self._part.end,
                f"the queue ends at {_number(answer, 'maxOffset')} now. Begin a new query with a new checkpoint",
            )  # fmt: skip
        self._pass_over(begin, f"the queue begins at {begin} now")

    def _pass_over(self, begin: int, told: str) -> None:
        """Goes on at `begin`, as the messages before it have expired, if the user wants that. Raises DataLossError."""
        lost = QueueRange(self._part.queue, self._position, min(begin, self._part.end))
        if self._options.fail_on_data_loss:
            raise DataLossError(
                "expired", *lost,
                f"{told}. failOnDataLoss=false goes on there; to lose nothing, read sooner or keep the log longer "
                "(fileReservedTime)",
            )  # fmt: skip
        log.warning("messages have expired %s from=%d to=%d", lost.queue, lost.start, lost.end - 1)
        self.lost.append(lost)
        self._go_to(lost.end)

    def _refuse(self, answer: RemotingCommand) -> None:
        queue = self._part.queue
        if answer.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER):
            advice = f"{self._address} answers {_said(answer)}. Make it again, or begin a query with a new checkpoint"
            raise DataLossError("queue gone", queue, self._position, self._part.end, advice)
        raise PullRefusedError(f"{queue}: {self._address} answers {_said(answer)}")

    @property
    def _address(self) -> str:
        return self._connection.address if self._connection is not None else "no broker"

    def _connected(self) -> BlockingConnection:
        if self._connection is None:
            address = leader_address(self._options.cluster, self._part.queue)
            self._connection = self._options.cluster.connection(address)
        return self._connection

    def close(self) -> None:
        """What is asked next connects anew."""
        self._under_way.clear()
        self._answers.clear()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def leader_address(cluster: ClusterAccess, queue: Queue) -> str:
    """Of the queue's broker. Raises NotNowError."""

    def find(route: TopicRouteData) -> str:
        leader = leaders_of(route).get(queue.broker)
        if leader is None:
            raise NotNowError(f"knows no leader of {queue.broker} with topic {queue.topic}")
        return leader

    return find_in_route(cluster, queue.topic, find)


def _said(answer: RemotingCommand) -> str:
    # RocketMQ's brokers add stack traces and links to their remarks.
    remark = (answer.remark or "").strip().splitlines()
    return f"{answer.code} {remark[0]}" if remark else str(answer.code)


def _first_offset(answer: RemotingCommand) -> int:
    """Of the first record."""
    return int.from_bytes(answer.body[QUEUE_OFFSET_AT : QUEUE_OFFSET_AT + 8])


def _number(answer: RemotingCommand, name: str) -> int:
    try:
        return int(answer.ext_fields[name])
    except (KeyError, ValueError):
        raise RemotingProtocolError(f"a pull was answered without a number {name}") from None
