"""Pulls: PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361).

Checks stand in the order of RocketMQ's decision table; the store says what lies in the queue. A pull that finds
nothing and may wait goes to the waiting room instead of being answered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from broker.broker_stats import BrokerStats
from broker.clients.client_channel import ClientChannel
from broker.clients.consumer_manager import ConsumerManager
from broker.config.broker_config import BrokerConfig
from broker.config.message_limits import ANSWER_SIZE_MAX
from broker.processors.pull.allowed_filter import allowed_filter
from broker.processors.pull.pull_turns import WAITING_MAX, Pull, PullTurns
from broker.request_turns import CallSoon
from broker.topics.subscription_group_manager import SubscriptionGroupManager
from broker.topics.topic_config_manager import TopicConfigManager
from broker.waiting.waiting_room import WAIT_MS_MAX, WaitingRequest, WaitingRoom, let_wait
from disk.disk import DiskError
from message.errors import SubscriptionParseError
from message.names import HIDDEN_TOPICS, TOOLS_CONSUMER_GROUP
from message.tags import EXPRESSION_TYPE_TAG, SubscriptionData, build_subscription
from remoting.bodies.bodies import MASTER_ID
from remoting.codes import FAQ, RequestCode, ResponseCode
from remoting.errors import RemotingHeaderError
from remoting.frame.command import RemotingCommand, encode_response, encode_response_head
from remoting.headers import headers
from store.errors import StoreError
from store.filter.message_filter import MessageFilter, UnsupportedExpressionError
from store.get_message import GetMessageResult, GetMessageStatus
from store.state.table_configs import PERM_READ, SubscriptionGroupConfig, TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset, EndReset

if TYPE_CHECKING:
    from store.message_store import MessageStore

log = logging.getLogger(__name__)

COMMIT_OFFSET_FLAG = 0x1
SUSPEND_FLAG = 0x2
SUBSCRIPTION_FLAG = 0x4

_MOVED_IF_OFFSET = (GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE)
_CODES = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}


class _Refused(Exception):
    def __init__(self, code: int, remark: str, forbidden_type: int | None = None) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark
        self.forbidden_type = forbidden_type


class PullMessageProcessor:
    """Invariant: a pull is answered once; it is held at most once, and never where it would be refused."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        stats: BrokerStats,
        waiting_room: WaitingRoom,
        clock: Callable[[], int],
        call_soon: CallSoon,
    ) -> None:
        self.config = config
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._stats = stats
        self._waiting_room = waiting_room
        self._offsets = store.tables.consumer_offset_table
        # Told to a consumer, and their end on its way into the log.
        self._ending_resets: set[tuple[str, str, int]] = set()  # group, topic, queue id
        self._count_max = config.store.max_transfer_count_on_message_in_memory
        # RocketMQ limits a pull by its own setting alone; the client's maxMsgBytes it only reads for pops.
        self._size_max = min(config.store.max_transfer_bytes_on_message_in_memory, ANSWER_SIZE_MAX)
        self._turns = PullTurns(self._pull, clock, call_soon)

    def process(self, channel: ClientChannel, commands: Sequence[RemotingCommand], now_ms: int) -> None:
        """Answers or holds each of `commands`, which are all pulls, in this turn of the loop or a later one."""
        pulls = [Pull(channel, command) for command in commands if not command.is_oneway]
        room = self._turns.room
        self._turns.take(pulls[:room], now_ms)
        remark = f"{WAITING_MAX} pulls wait to be answered, and no more may"
        for pull in pulls[room:]:
            channel.write(_frame(pull.command, ResponseCode.SYSTEM_BUSY, remark, {}))

    def resumed(self, channel: ClientChannel, now_ms: int) -> None:
        """Its client has taken most of what waited to be written."""
        self._turns.resumed(channel, now_ms)

    def closed(self, channel: ClientChannel) -> None:
        self._turns.closed(channel)

    def _pull(self, pull: Pull, now_ms: int, frames: list[bytes]) -> None:
        """Its answer into `frames`, unless it is held."""
        channel, command, held_header = pull
        is_first = held_header is None
        try:
            header = held_header or headers.decode(headers.PullMessageRequestHeader, command.ext_fields)
            group, topic, message_filter = self._check(channel, command, header, now_ms)
        except _Refused as refused:
            fields = {}
            if refused.forbidden_type is not None:
                fields["forbiddenType"] = str(refused.forbidden_type)
            frames.append(_frame(command, refused.code, refused.remark, fields))
            return
        except RemotingHeaderError as error:
            frames.append(_frame(command, ResponseCode.SYSTEM_ERROR, str(error), {}))
            return
        if self._offsets.resets:
            reset = self._told_reset(header, now_ms)
            if reset is not None:
                moved, retry = ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY
                told = moved if self._store.serving else retry
                _add_result(frames, command, told, reset, group, topic, MASTER_ID)
                return
        if is_first and header.sys_flag & COMMIT_OFFSET_FLAG and header.commit_offset >= 0:
            self._commit_offset(header, now_ms)
        try:
            result = self._store.reads.get_message(
                header.topic,
                header.queue_id,
                header.queue_offset,
                max(min(header.max_msg_nums, self._count_max), 1),
                self._size_max,
                message_filter,
            )
        except (StoreError, DiskError) as error:
            # What is damaged is mended, or ends this member; the client asks again, here or the next leader.
            log.error("pull failed topic=%s queue_id=%d error=%s", header.topic, header.queue_id, error)
            frames.append(
                _frame(command, ResponseCode.SYSTEM_ERROR, f"the messages cannot be read: {error}", {})
            )
            return
        self._turns.spend(result.filter_cost)
        code = _code_of(result, header.queue_offset)
        suggested = MASTER_ID
        if self.config.slave_read_enable:
            suggested = self._suggested_broker(result, group)
            if not self._store.serving:
                code = self._code_of_follower(code, result, header.queue_offset)
        if (
            code == ResponseCode.PULL_NOT_FOUND
            and is_first
            and header.sys_flag & SUSPEND_FLAG
            and self._waiting_room.has_room(channel)
            and let_wait(command)
        ):
            hold_ms = min(header.suspend_timeout_millis, WAIT_MS_MAX)
            if not self.config.long_polling_enable:
                hold_ms = self.config.short_polling_time_ms
            # A topic that was made again begins with that, whatever was asked for.
            offset = max(header.queue_offset, result.min_offset)
            again = Pull(channel, command, header)
            request = WaitingRequest(
                channel, now_ms + hold_ms, offset, message_filter, again, self._turns.take
            )
            self._waiting_room.hold(header.topic, header.queue_id, request)
            return
        self._stats.pulled(
            header.consumer_group,
            header.topic,
            header.queue_id,
            result.next_begin_offset,
            result.count,
        )
        _add_result(frames, command, code, result, group, topic, suggested)

    def _suggested_broker(self, result: GetMessageResult, group: SubscriptionGroupConfig) -> int:
        """Where the client should pull next, if followers may be read."""
        if result.suggest_pulling_from_slave:
            return group.which_broker_when_consume_slowly
        return group.broker_id if self._store.serving else MASTER_ID

    def _code_of_follower(self, code: int, result: GetMessageResult, offset: int) -> int:
        """A follower may be behind: it moves nobody's offset, and sends clients that need more to the leader. While
        there is none, they wait here.
        """
        if code == ResponseCode.PULL_OFFSET_MOVED:
            result.next_begin_offset = offset
            code = ResponseCode.PULL_NOT_FOUND
        is_left_to_leader = code != ResponseCode.SUCCESS and not result.suggest_pulling_from_slave
        if is_left_to_leader and self._store.leader_id is not None:
            return ResponseCode.PULL_RETRY_IMMEDIATELY
        return code

    def _told_reset(self, header: headers.PullMessageRequestHeader, now_ms: int) -> GetMessageResult | None:
        """Tells the first consumer that pulls after a reset where to go on; commits count again once that is applied.

        A follower cannot end the reset: it sends the consumer to the leader.
        """
        store = self._store
        topic, queue_id = header.topic, header.queue_id
        key = header.consumer_group, topic, queue_id
        offset = self._offsets.reset_offset(*key)
        if offset is None or key in self._ending_resets:
            return None
        low, high = store.reads.min_offset(topic, queue_id), store.reads.max_offset(topic, queue_id)
        if not store.serving:
            if store.leader_id is None:
                return None
            return GetMessageResult(GetMessageStatus.OFFSET_RESET, header.queue_offset, low, high, [])
        self._ending_resets.add(key)
        store.propose(EndReset(*key, offset), lambda status: self._ending_resets.discard(key), now_ms)
        log.info("reset told group=%s topic=%s queue_id=%d offset=%d", *key, offset)
        return GetMessageResult(GetMessageStatus.OFFSET_RESET, offset, low, high, [])

    def _commit_offset(self, header: headers.PullMessageRequestHeader, now_ms: int) -> None:
        """Most pulls carry the offset that an earlier one carried already."""
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if (group, topic, queue_id) in self._ending_resets:
            return  # sent before its consumer could know of the reset
        if self._store.reads.query_offset(group, topic, queue_id) != header.commit_offset:
            self._store.propose(CommitOffset(group, topic, queue_id, header.commit_offset), None, now_ms)

    def _check(
        self,
        channel: ClientChannel,
        command: RemotingCommand,
        header: headers.PullMessageRequestHeader,
        now_ms: int,
    ) -> tuple[SubscriptionGroupConfig, TopicConfig, MessageFilter | None]:
        """Makes the checks that come before a look into the queue. Raises _Refused."""
        config = self.config
        if not self._store.serving and not config.slave_read_enable:
            raise _Refused(
                ResponseCode.SYSTEM_BUSY, "[REJECTREQUEST]system busy, start flow control for a while"
            )
        if not config.broker_permission & PERM_READ:
            raise _Refused(
                ResponseCode.NO_PERMISSION, f"the broker[{config.broker_ip1}] pulling message is forbidden", 1
            )
        if not config.lite_pull_message_enable and command.code == RequestCode.LITE_PULL_MESSAGE:
            remark = f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden"
            raise _Refused(ResponseCode.NO_PERMISSION, remark, 1)
        group = self._groups.find(header.consumer_group, now_ms)
        if group is None:
            raise _Refused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, {FAQ}",
            )
        if not group.consume_enable:
            raise _Refused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}", 2
            )
        topic = self._topics.select(header.topic)
        if topic is None:
            raise _Refused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            )
        if header.topic in HIDDEN_TOPICS and header.consumer_group != TOOLS_CONSUMER_GROUP:
            remark = (
                f"the topic[{header.topic}] holds what is not decided yet: no consumer is given it. "
                f"Tools read it as group {TOOLS_CONSUMER_GROUP}"
            )
            raise _Refused(ResponseCode.NO_PERMISSION, remark, 3)
        if not topic.perm & PERM_READ:
            raise _Refused(
                ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden", 3
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise _Refused(
                ResponseCode.INVALID_PARAMETER,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] topicConfig.readQueueNums:"
                f"[{topic.read_queue_nums}] consumer:[{channel.remote_address}]",
            )
        subscription = self._subscription(header, group)
        try:
            return group, topic, allowed_filter(subscription, config, self._topics)
        except UnsupportedExpressionError as error:
            raise _Refused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except SubscriptionParseError as error:
            if header.sys_flag & SUBSCRIPTION_FLAG:
                raise _parse_failed(error) from None
            raise _Refused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                f"The broker's consumer filter data is not exist!Your expression may be wrong! {error}",
            ) from None

    def _subscription(
        self, header: headers.PullMessageRequestHeader, group: SubscriptionGroupConfig
    ) -> SubscriptionData:
        """Rows 9 to 14: from the pull itself, or what the group's clients registered."""
        if header.sys_flag & SUBSCRIPTION_FLAG:
            expression_type = header.expression_type or EXPRESSION_TYPE_TAG
            try:
                return build_subscription(
                    header.topic, header.subscription, expression_type, header.sub_version
                )
            except SubscriptionParseError as error:
                raise _parse_failed(error) from None
        registered = self._consumers.groups.get(header.consumer_group)
        if registered is None:
            raise _Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist{FAQ}")
        if not group.consume_broadcast_enable and registered.message_model == "BROADCASTING":
            raise _Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
                4,
            )
        if (
            self._store.tables.subscription_group_table.forbidden_bits(header.consumer_group, header.topic)
            & PERM_READ
        ):
            raise _Refused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]",
                5,
            )
        subscription = registered.subscriptions.get(header.topic)
        if subscription is None:
            raise _Refused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist{FAQ}")
        if subscription.sub_version < header.sub_version:
            raise _Refused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription


def _parse_failed(error: SubscriptionParseError) -> _Refused:
    return _Refused(
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
    )


def _code_of(result: GetMessageResult, offset: int) -> int:
    status = result.status
    if status in _MOVED_IF_OFFSET:
        return ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND
    return _CODES[status]


def _add_result(
    frames: list[bytes],
    command: RemotingCommand,
    code: int,
    result: GetMessageResult,
    group: SubscriptionGroupConfig,
    topic: TopicConfig,
    suggested_broker: int,
) -> None:
    fields = {
        "suggestWhichBrokerId": str(suggested_broker),
        "nextBeginOffset": str(result.next_begin_offset),
        "minOffset": str(result.min_offset),
        "maxOffset": str(result.max_offset),
        "topicSysFlag": str(topic.topic_sys_flag),
        "groupSysFlag": str(group.group_sys_flag),
    }
    frames.append(
        encode_response_head(
            command.opaque, command.serialize_type, code, fields, result.size, result.status.name
        )
    )
    frames += result.buffers  # as they lie in the log


def _frame(command: RemotingCommand, code: int, remark: str, fields: dict[str, str]) -> bytes:
    return encode_response(command.opaque, command.serialize_type, code, fields, remark=remark)
