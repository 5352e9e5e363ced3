"""Requests with fields missing, of another type, huge, negative or unreadable, for every code that is served: one
answer each, and the broker goes on. What is refused changes nothing, what is stored is sound, and another client does
not notice.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hostile_requests import Sound, sound_requests
from hostile_values import flipped, hostile_bodies, hostile_fields
from one_broker import OneBroker, RecordingChannel, commit_fields, heart_beat, pull_fields, send_fields

from broker.config.broker_settings import TOPIC_QUEUE_NUMS_MAX
from message.decoder import decode_messages
from message.names import group_fault, topic_fault
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingProtocolError
from remoting.frame.command import RemotingCommand
from remoting.frame.connection import RemotingConnection

WIRE = Path(__file__).parent.parent / "golden" / "wire"
CODES = sorted(sound_requests())
# A pull may commit an offset, and is fulfilled also where there is no message.
FULFILLED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
    ResponseCode.POLLING_TIMEOUT,  # of a pop that has passed over what its filter does not want
)


class Witness:
    """A client whose topic, group, offset and held pull must outlast all that others do."""

    def __init__(self, broker: OneBroker) -> None:
        self._broker = broker
        self._channel = RecordingChannel(77)
        self._sent = 0
        self._beat()
        self.send()
        fields = commit_fields(1, consumerGroup="witness", topic="Witness")
        assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS
        self._config = self._settings()
        self._held = self._hold()

    def _beat(self) -> None:
        body = heart_beat("witness", topics=("Witness",), group="witness")
        answer = self._broker.ask(RequestCode.HEART_BEAT, {}, body, self._channel)
        assert answer.code == ResponseCode.SUCCESS

    def send(self) -> None:
        body = b"%d" % self._sent
        fields = send_fields("Witness")
        answer = self._broker.ask(RequestCode.SEND_MESSAGE_V2, fields, body, self._channel)
        assert (answer.code, answer.ext_fields["queueOffset"]) == (ResponseCode.SUCCESS, str(self._sent))
        self._sent += 1

    def _hold(self) -> RemotingCommand:
        fields = pull_fields(
            "Witness", offset=self._sent, sysFlag="6", suspendTimeoutMillis="1000000", consumerGroup="witness"
        )
        command = self._broker.new_request(RequestCode.PULL_MESSAGE, fields)
        self._broker.receive([command], self._channel)
        return command

    def _settings(self) -> tuple[object, ...]:
        store = self._broker.store
        return (
            store.tables.topic_config_table.get("Witness"),
            store.tables.subscription_group_table.get("witness"),
            store.reads.query_offset("witness", "Witness", 0),
        )

    def check(self) -> None:
        assert self._settings() == self._config
        assert self._channel.response_to(self._held.opaque) is None, "held"
        self.send()
        self._broker.settle()
        held = self._channel.response_to(self._held.opaque)
        assert held is not None
        assert [m.body for m in decode_messages(held.body)] == [b"%d" % (self._sent - 1)]
        everything = self._broker.ask(RequestCode.PULL_MESSAGE, pull_fields("Witness"), b"", self._channel)
        assert [m.body for m in decode_messages(everything.body)] == [b"%d" % n for n in range(self._sent)]
        self._beat()
        self._held = self._hold()


class Hostile:
    """A broker with topic T, group g and its client c1, and somebody who asks for all sorts of things."""

    def __init__(self, directory: Path) -> None:
        self.broker = OneBroker(directory, "flushDiskType=ASYNC_FLUSH\n")
        self.witness = Witness(self.broker)
        self.client = RecordingChannel(7)
        self.channel = self.broker.channel
        answer = self.prepare()
        self.sound = sound_requests(answer.ext_fields["msgId"])

    def prepare(self) -> RemotingCommand:
        """Again after each request that was fulfilled: it may have deleted something."""
        ask = self.broker.ask
        assert ask(RequestCode.HEART_BEAT, {}, heart_beat("c1"), self.client).code == ResponseCode.SUCCESS
        sent = ask(RequestCode.SEND_MESSAGE_V2, send_fields("T", properties="KEYS\x01k\x02"), b"m")
        assert sent.code == ResponseCode.SUCCESS
        assert ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(1)).code == ResponseCode.SUCCESS
        return sent

    def stored(self) -> object:
        store = self.broker.store
        groups, offsets = store.tables.subscription_group_table, store.tables.consumer_offset_table
        return (
            dict(store.tables.topic_config_table.configs),
            dict(groups.configs),
            {group: dict(topics) for group, topics in groups.forbidden.items()},
            {key: dict(queues) for key, queues in offsets.offsets.items()},
            {key: set(queues) for key, queues in offsets.resets.items()},
            {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues},
        )

    def ask(self, command: RemotingCommand) -> RemotingCommand | None:
        """Its answer, or None for one that is waited for: of a held pull, or of another client."""
        self.broker.receive([command])
        for _ in range(5):
            self.broker.settle()
            answer = self.channel.response_to(command.opaque)
            if answer is not None or command.is_oneway:
                return answer
            self.broker.tick()
        return None

    def check(self) -> None:
        """What is stored is sound, and nothing is left of a client that has gone."""
        self.broker.controller.pipeline.channel_closed(self.channel)
        self.broker.controller.pipeline.channel_closed(self.client)
        self.witness.check()
        controller = self.broker.controller
        assert set(controller.consumers.groups) == {"witness"}
        assert set(controller.producers.groups) == {"p"}
        assert len(controller.waiting_room) == 1
        self.check_tables()
        for queue in self.broker.store.queues:
            self._check_queue(queue.topic.decode(), queue.queue_id, queue.min_offset, queue.max_offset)

    def check_tables(self) -> None:
        store = self.broker.store
        for topic, config in store.tables.topic_config_table.configs.items():
            assert config.topic_name == topic
            assert topic_fault(topic) is None
            assert 0 <= config.read_queue_nums <= TOPIC_QUEUE_NUMS_MAX
            assert 0 <= config.write_queue_nums <= TOPIC_QUEUE_NUMS_MAX
            assert 0 <= config.perm < 16
            assert config.topic_filter_type in ("SINGLE_TAG", "MULTI_TAG")
        for group, group_config in store.tables.subscription_group_table.configs.items():
            assert group_config.group_name == group
            assert group_fault(group) is None
            assert 0 <= group_config.retry_queue_nums <= TOPIC_QUEUE_NUMS_MAX
        for key, offsets in store.tables.consumer_offset_table.offsets.items():
            topic, _, group = key.rpartition("@")
            assert topic_fault(topic) is None
            assert group_fault(group) is None
            assert all(0 <= queue_id < TOPIC_QUEUE_NUMS_MAX for queue_id in offsets)
            assert all(offset >= 0 for offset in offsets.values())

    def _check_queue(self, topic: str, queue_id: int, next_offset: int, max_offset: int) -> None:
        while next_offset < max_offset:
            found = self.broker.store.reads.get_message(topic, queue_id, next_offset, 32, 1 << 20)
            for message in decode_messages(b"".join(found.buffers)):
                assert (message.topic, message.queue_id, message.queue_offset) == (
                    topic,
                    queue_id,
                    next_offset,
                )
                assert message.body
                next_offset += 1
            assert found.buffers


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Hostile]:
    made = Hostile(tmp_path)
    yield made
    made.broker.close()


def requests_spoiled(hostile: Hostile, code: int, sound: Sound) -> Iterator[RemotingCommand]:
    new = hostile.broker.new_request
    for fields in hostile_fields(sound.fields):
        yield new(code, fields, sound.body)
    for body in hostile_bodies(sound.body):
        yield new(code, sound.fields, body)
    for topic_field in {"b", "topic"} & set(sound.fields):
        # What would make a topic and must not, because of something else.
        for number, fields in enumerate(hostile_fields(sound.fields)):
            yield new(code, {**fields, topic_field: f"Unborn{number}"}, sound.body)
    yield new(code, {}, sound.body)
    yield new(code, sound.fields, sound.body, oneway=True)


def test_the_table_has_every_code_that_is_served(broker: OneBroker) -> None:
    not_served = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert [code for code in RequestCode if broker.ask(code).code != not_served] == CODES


@pytest.mark.slow
@pytest.mark.parametrize("code", CODES)
def test_a_spoiled_request_is_answered_and_what_is_refused_changes_nothing(
    hostile: Hostile, code: int
) -> None:
    sound = hostile.sound[code]
    waiting = []
    for command in requests_spoiled(hostile, code, sound):
        before = hostile.stored()
        answer = hostile.ask(command)
        if answer is None and not command.is_oneway and code != RequestCode.END_TRANSACTION:
            waiting.append(
                command
            )  # an end that says neither commit nor rollback gets no answer, as in RocketMQ
        if answer is None or answer.code in FULFILLED:
            hostile.check_tables()
            hostile.prepare()
        else:
            assert hostile.stored() == before, (command.ext_fields, bytes(command.body), answer.remark)
    hostile.broker.run_for(11_000)
    hostile.broker.ask(
        RequestCode.SEND_MESSAGE_V2, send_fields("T", 1), b"ends pulls that would wait for years"
    )
    for command in waiting:
        assert hostile.channel.response_to(command.opaque) is not None, (command.ext_fields, command.body)
    hostile.check()


@pytest.mark.slow
def test_a_member_that_stopped_leading_answers_as_well_and_changes_nothing(hostile: Hostile) -> None:
    before = hostile.stored()
    hostile.broker.step_down()
    hostile.channel.received = []
    asked = []
    for code, sound in hostile.sound.items():
        for command in requests_spoiled(hostile, code, sound):
            hostile.broker.receive([command])
            hostile.broker.settle()
            if not command.is_oneway:
                asked.append(command)
    hostile.broker.run_for(11_000)
    answered = Counter(command.opaque for command in hostile.channel.received if command.is_response)
    assert answered == Counter(command.opaque for command in asked)
    assert hostile.stored() == before


@pytest.mark.parametrize("code", CODES)
def test_an_unspoiled_request_is_fulfilled(hostile: Hostile, code: int) -> None:
    """Else the spoiled ones would be refused for another reason."""
    sound = hostile.sound[code]
    command = hostile.broker.new_request(code, sound.fields, sound.body)
    answer = hostile.ask(command)
    if answer is None:
        hostile.broker.run_for(11_000)
        answer = hostile.channel.response_to(command.opaque)
    assert answer is not None
    assert answer.code == sound.code, answer.remark
    hostile.check()


def recorded_requests() -> list[bytes]:
    """Each different frame that a client, a tool or a broker sent to Java's broker."""
    frames = set()
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        if path.name.startswith("dledger_"):
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if row.get("to", "").startswith("broker") and row["kind"] in ("request", "oneway"):
                    frames.add(b64decode(row["frame_b64"]))
    return sorted(frames)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_recorded_requests_with_flipped_bits_do_no_harm(hostile: Hostile, part: int) -> None:
    random = Random(part)
    frames = recorded_requests()[part::4]
    assert len(frames) > 300
    for number, frame in enumerate(frames):
        channel = RecordingChannel(1000 + number)
        handler = hostile.broker.controller.pipeline
        for changed in (flipped(frame, random), flipped(flipped(frame, random), random)):
            try:
                commands = RemotingConnection().receive_data(changed)
            except RemotingProtocolError as error:
                commands = error.commands
            handler.commands_received(channel, commands)
            hostile.broker.tick()
        handler.channel_closed(channel)
    hostile.broker.run_for(11_000)
    hostile.check()
