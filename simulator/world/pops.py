"""Consumers of two groups that pop, one of them in order: they acknowledge messages alone or together, ask for more
time, or forget what they were given. Some hear no answer, and ask again as the same attempt.

They take whoever they reach for the leader, as clients do. The requests are worked on by the broker's own processors.
"""

from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Final, NamedTuple

from message.const import POP_CK
from message.decoder import decode_messages
from message.names import pop_retry_topic
from message.pop_handle import PopHandle, topic_of_mark
from remoting.bodies.pop_bodies import BatchAck, BatchAckMessageRequestBody
from remoting.codes import ResponseCode
from remoting.headers.pop_headers import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    PopMessageRequestHeader,
)
from simulator.harness.options import Options
from simulator.harness.oracle import Oracle, uid_of
from simulator.invariants.kinds.popped_until_acknowledged import PoppedUntilAcknowledged
from simulator.world.event_loop import EventLoop
from simulator.world.pop_broker import BROKER_NAME, PopAnswer, PopBroker
from simulator.world.process import Process
from simulator.world.sim_member import SimMember
from simulator.world.workload import TOPICS
from store.message_store import MessageStore
from store.state.table import StateChange
from store.state.table_configs import SubscriptionGroupConfig, TopicConfig
from store.state.tables.pop_table import Popped
from store.state.tables.subscription_group_table import PutSubscriptionGroup
from store.state.tables.topic_config_table import PutTopicConfig

_PLAIN: Final = "workers"
_FIFO: Final = "clerks"
_TOPICS: Final = tuple(topic.decode() for topic in TOPICS)
_COUNT_MAX: Final = 8
_ATTEMPTS_MAX: Final = 3
_INVISIBLE_MS: Final = (100, 1_500)
_ACK_US_MAX: Final = 2_000_000
_AGAIN_US_MAX: Final = 100_000
_DRAIN_INTERVAL_US: Final = 50_000


class _Given(NamedTuple):
    """A message as a consumer has it."""

    group: str
    topic: str  # as consumers know it
    uid: int
    queue_id: int
    offset: int
    given_count: int  # how often it was given out before
    handle: PopHandle

    @property
    def real_topic(self) -> str:
        return topic_of_mark(self.topic, self.group, self.handle.retry)


class Pops:
    def __init__(
        self, loop: EventLoop, members: list[SimMember], oracle: Oracle, options: Options, random: Random
    ) -> None:
        self.is_running = True  # until then consumers forget, and hear no answers
        self.popped_count = self.acked_count = 0  # messages, as consumers were told
        self.fates = PoppedUntilAcknowledged(oracle)
        self._loop = loop
        self._members = members
        self._options = options
        self._random = random
        self._brokers: dict[str, PopBroker] = {}  # by member id
        self._attempt_count = 0
        self._is_draining = False

    def start(self) -> None:
        if self._options.pop_interval_us:
            self._loop.call_later(0, self._act)

    def _act(self) -> None:
        if not self.is_running:
            return
        random = self._random
        self._loop.call_later(int(random.expovariate(1 / self._options.pop_interval_us)) + 1, self._act)
        self._ask(random.choice((_PLAIN, _PLAIN, _FIFO)), random.choice(_TOPICS), self._new_attempt())

    def _new_attempt(self) -> str:
        self._attempt_count += 1
        return str(self._attempt_count)

    def _choose_member(self) -> SimMember:
        """Mostly one that says it serves, of which there may be two."""
        serving = self._serving()
        return self._random.choice(serving if serving and self._random.random() < 0.9 else self._members)

    def _serving(self) -> list[SimMember]:
        return [
            member
            for member in self._members
            if member.process is not None and not member.is_paused and member.process.store.serving
        ]

    def _leader(self) -> Process | None:
        """The one that others are to follow."""
        leader = max(self._serving(), key=_term, default=None)
        return leader.process if leader is not None else None

    def _broker(self, process: Process) -> PopBroker:
        member_id = process.host.member_id
        broker = self._brokers.get(member_id)
        if broker is None or broker.process is not process:
            broker = self._brokers[member_id] = PopBroker(process, self._random)
        return broker

    # -- popping -----------------------------------------------------------------------------------------------

    def _ask(self, group: str, topic: str, attempt_id: str) -> None:
        random = self._random
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=-1 if random.random() < 0.8 else random.randrange(self._options.queue_count),
            max_msg_nums=random.randint(1, _COUNT_MAX) if self.is_running else 32,
            invisible_time=random.randint(*_INVISIBLE_MS),
            poll_time=random.choice((0, 0, 300)),
            init_mode=0,
            order=group == _FIFO,
            attempt_id=attempt_id,
        )
        member = self._choose_member()
        if member.process is not None and not member.process.is_stopping:
            member.call(self._pop, member, member.process, header, self._loop.now_us)

    def _pop(
        self, member: SimMember, process: Process, header: PopMessageRequestHeader, asked_us: int
    ) -> None:
        changes = self._wanted_changes(process.store)
        for change in changes:
            process.store.propose(change, None, member.now_ms())
        if not changes:
            self._broker(process).pop(header, partial(self._popped, member, header, asked_us))

    def _wanted_changes(self, store: MessageStore) -> list[StateChange]:
        """What is to be there before anybody pops. In the end that is all queues."""
        groups, topics = store.tables.subscription_group_table, store.tables.topic_config_table
        queue_count = self._options.queue_count
        changes: list[StateChange] = [
            PutSubscriptionGroup(SubscriptionGroupConfig(group, retry_max_times=_ATTEMPTS_MAX))
            for group in (_PLAIN, _FIFO)
            if groups.get(group) is None
        ]
        for topic in _TOPICS:
            config = topics.get(topic)
            if config is None or (not self.is_running and config.read_queue_nums < queue_count):
                changes.append(PutTopicConfig(TopicConfig(topic, queue_count, queue_count)))
        return changes

    def _popped(
        self, member: SimMember, header: PopMessageRequestHeader, asked_us: int, answer: PopAnswer
    ) -> None:
        """Raises ViolationError."""
        group, topic = header.consumer_group, header.topic
        member.trace.add(self._loop.now_us, "{} pop {} {} {}", member.member_id, group, topic, answer.code)
        if answer.code != ResponseCode.SUCCESS or (self.is_running and self._random.random() < 0.1):
            # Nothing was found, or the client has not got the answer.
            if self.is_running and self._random.random() < 0.3:
                delay_us = self._random.randint(0, _AGAIN_US_MAX)
                self._loop.call_later(delay_us, self._ask, group, topic, header.attempt_id)
            return
        given = _given(group, topic, answer)
        if group == _FIFO:
            firsts = {message.queue_id: message.offset for message in reversed(given)}
            for queue_id, offset in firsts.items():
                self.fates.given_in_order(group, topic, queue_id, offset)
        for message in given:
            self.fates.given(group, message.uid, message.given_count, asked_us, self._loop.now_us)
        self.popped_count += len(given)
        self._decide(given)

    def _decide(self, given: list[_Given]) -> None:
        """What becomes of the messages of an answer."""
        random = self._random
        if not self.is_running:
            self._call(given, is_ack=True)
            return
        if random.random() < 0.3:
            together = [message for message in given if random.random() < 0.7]
            self._call_later(together, is_ack=True)
            return
        for message in given:
            dice = random.random()
            if dice < 0.75:
                self._call_later([message], is_ack=dice < 0.6)

    def _call_later(self, given: list[_Given], *, is_ack: bool) -> None:
        # Some in good time, some about when their time is over.
        delay_us = self._random.randint(0, self._random.choice((50_000, _ACK_US_MAX)))
        self._loop.call_later(delay_us, partial(self._call, given, is_ack=is_ack))

    def _call(self, given: list[_Given], *, is_ack: bool) -> None:
        member = self._choose_member()
        if given and member.process is not None and not member.process.is_stopping:
            member.call(self._ack if is_ack else self._change, member, member.process, given)

    # -- ends --------------------------------------------------------------------------------------------------

    def _ack(self, member: SimMember, process: Process, given: list[_Given]) -> None:
        in_time = [message for message in given if self._is_in_time(message)]
        for message in given:
            self.fates.ack_asked(message.group, message.uid)

        def told(answer: PopAnswer) -> None:
            uids = [message.uid for message in given]
            member.trace.add(self._loop.now_us, "{} pop ack {} {}", member.member_id, uids, answer.code)
            if answer.code == ResponseCode.SUCCESS:
                for message in in_time:
                    self.fates.ack_told(message.group, message.uid, self._loop.now_us)
                self.acked_count += len(in_time)

        broker = self._broker(process)
        if len(given) > 1:
            broker.batch_ack(
                BatchAckMessageRequestBody(acks=[_batch_ack(message) for message in given]), told
            )
            return
        (message,) = given
        header = AckMessageRequestHeader(
            consumer_group=message.group,
            topic=message.real_topic,
            queue_id=message.queue_id,
            extra_info=message.handle.encode(),
            offset=message.offset,
        )
        broker.ack(header, told)

    def _is_in_time(self, given: _Given) -> bool:
        """By the leader that others are to follow: an ack that is told now counts, whoever tells it."""
        leader = self._leader()
        if leader is None:
            return False
        handle, table = given.handle, leader.store.tables.pop_table
        bits = 1 << given.offset - handle.start
        named = Popped(given.group, given.real_topic, given.queue_id, handle.start, handle.pop_time, bits)
        for popped in table.in_flight(named):  # one
            queue = table.queues[popped[:3]]
            check_point = queue.check_points.get((popped.start, popped.pop_time))
            visible = queue.order.visible if queue.order is not None else {}
            visible_ms = check_point.visible_ms if check_point is not None else visible[given.offset]
            return visible_ms > leader.host.now_ms()
        return False

    def _change(self, member: SimMember, process: Process, given: list[_Given]) -> None:
        (message,) = given
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=message.group,
            topic=message.real_topic,
            queue_id=message.queue_id,
            extra_info=message.handle.encode(),
            offset=message.offset,
            invisible_time=self._random.randint(*_INVISIBLE_MS),
        )

        def told(answer: PopAnswer) -> None:
            member.trace.add(
                self._loop.now_us, "{} pop change {} {}", member.member_id, message.uid, answer.code
            )
            if answer.code == ResponseCode.SUCCESS:
                handle = message.handle._replace(
                    start=message.offset,
                    pop_time=int(answer.fields["popTime"]),
                    invisible_ms=int(answer.fields["invisibleTime"]),
                )
                # Some clients go on with the handle that they had.
                is_newer = self._random.random() < 0.7
                self._call_later([message._replace(handle=handle) if is_newer else message], is_ack=True)

        self._broker(process).change_invisible_time(header, told)

    # -- the end of a run --------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Pops and acknowledges all there is, until check_drained() is called."""
        self._is_draining = True
        self._drain_some()

    def _drain_some(self) -> None:
        if not self._is_draining:
            return
        if not self.is_drained():
            for topic in _TOPICS:
                self._ask(_PLAIN, topic, self._new_attempt())
                self._ask(_FIFO, topic, self._new_attempt())
        # Another leader may have more.
        self._loop.call_later(_DRAIN_INTERVAL_US, self._drain_some)

    def is_drained(self) -> bool:
        if not self._options.pop_interval_us:
            return True
        leader = self._leader()
        # What is committed and not applied yet is in no queue.
        return (
            leader is not None
            and leader.store.reads.applied_index >= leader.replica.member.committed_index
            and self._is_drained_at(leader.store)
        )

    def _is_drained_at(self, store: MessageStore) -> bool:
        if store.tables.pop_table.in_flight_count:
            return False
        queues = [
            (group, topic, queue_id)
            for group in (_PLAIN, _FIFO)
            for topic in _TOPICS
            for queue_id in range(self._options.queue_count)
        ]
        queues += [(_PLAIN, pop_retry_topic(_PLAIN, topic), 0) for topic in _TOPICS]
        offsets = store.tables.consumer_offset_table
        return all(
            offsets.query(group, topic, queue_id) >= store.reads.max_offset(topic, queue_id)
            for group, topic, queue_id in queues
            if store.reads.max_offset(topic, queue_id) > 0
        )

    def check_drained(self) -> None:
        """Raises ViolationError."""
        self._is_draining = False
        if self._options.pop_interval_us:
            for group in (_PLAIN, _FIFO):
                self.fates.check_ended(group, _TOPICS)


def _term(member: SimMember) -> int:
    assert member.process is not None, "it serves"
    return member.process.replica.member.curr_term


def _given(group: str, topic: str, answer: PopAnswer) -> list[_Given]:
    """As RocketMQ's client makes the handles."""
    starts = _by_queue(answer.fields.get("startOffsetInfo", ""))
    counts = _by_queue(answer.fields.get("orderCountInfo", ""))
    given = []
    for message in decode_messages(answer.body):
        queue_id, offset = message.queue_id, message.queue_offset
        text = message.properties.get(POP_CK)
        handle = (
            PopHandle.decode(text)
            if text is not None
            else PopHandle(
                starts[f"0 {queue_id}"],
                int(answer.fields["popTime"]),
                int(answer.fields["invisibleTime"]),
                int(answer.fields["reviveQid"]),
                "0",
                BROKER_NAME,
                queue_id,
                offset,
            )
        )
        count = max(message.reconsume_times, counts.get(f"0 qo{queue_id}%{offset}", 0))
        given.append(_Given(group, topic, uid_of(message.body), queue_id, offset, count, handle))
    return given


def _by_queue(info: str) -> Mapping[str, int]:
    parts = (part.rpartition(" ") for part in info.split(";") if part)
    return {queue: int(number) for queue, _, number in parts}


def _batch_ack(message: _Given) -> BatchAck:
    handle = message.handle
    bits = 1 << message.offset - handle.start
    return BatchAck(
        consumer_group=message.group,
        topic=message.topic,
        retry=handle.retry,
        start_offset=handle.start,
        queue_id=message.queue_id,
        revive_queue_id=handle.revive_queue_id,
        pop_time=handle.pop_time,
        invisible_time=handle.invisible_ms,
        bits=b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode(),
    )
