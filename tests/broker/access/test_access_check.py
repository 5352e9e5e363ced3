"""The check that each request passes: who asks, and what policies say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hostile_requests import Sound, sound_requests
from one_broker import OneBroker, RecordingChannel, commit_fields, heart_beat, pull_fields, send_fields
from secured_broker import (
    CONF,
    NEW_USER,
    ROOT,
    USER,
    allow,
    answer_to,
    ask_as,
    change,
    secured_broker,
    signed,
)

from auth.authentication import CLIENT_ADDRESS, CLIENT_USER
from auth.credentials import Credentials
from auth.policy import PolicyType, make_entry
from auth.user import UserStatus, UserType
from message.message_id import decode_offset_message_id
from remoting.bodies.bodies import HeartbeatData, ProducerData
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand
from store.state.tables.access_table import DeleteUser, PutPolicyEntries, PutUser

SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE
CODES = sorted(sound_requests())
NEW_TOPIC = sound_requests()[RequestCode.UPDATE_AND_CREATE_TOPIC].fields | {"topic": "New"}
# The second is about a message that is no half, which belongs to no topic.
NEED_NO_RIGHT = {RequestCode.CHECK_CLIENT_CONFIG, RequestCode.END_TRANSACTION}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with secured_broker(tmp_path) as made:
        change(made, NEW_USER)
        assert ask_as(made, ROOT, SEND, send_fields("T"), b"m").code == ResponseCode.SUCCESS
        yield made


def sound(broker: OneBroker, code: int) -> Sound:
    sent = ask_as(broker, ROOT, SEND, send_fields("T"), b"m")
    return sound_requests(sent.ext_fields["msgId"])[code]


@pytest.mark.parametrize("code", CODES)
def test_no_code_answers_one_who_does_not_prove_who_they_are_or_has_no_right(
    broker: OneBroker, code: int
) -> None:
    """Each request that the broker knows, by anybody, by a wrong secret, by a user with no rights, by a super user."""
    request = sound(broker, code)

    def ask(credentials: Credentials | None) -> tuple[int, str | None]:
        answer = ask_as(broker, credentials, code, request.fields, request.body)
        return answer.code, answer.remark

    refused = ResponseCode.NO_PERMISSION
    assert ask(None) == (refused, "username cannot be null.")
    assert ask(Credentials("nobody", "u-secret")) == (refused, "User:nobody is not found.")
    assert ask(Credentials("u", "another")) == (refused, "check signature failed.")
    if code not in NEED_NO_RIGHT:
        found, remark = ask(USER)
        assert found == refused
        assert remark is not None
        assert remark.startswith("User:u has no permission to access ")
        assert remark.endswith(" from 10.1.2.3, no matched policies.")
    answered = ask(ROOT)
    assert answered[0] != refused or request.code == refused, answered
    change(broker, PutUser("u", None, None, UserStatus.DISABLE))
    assert ask(USER) == (refused, "User:u is disabled.")


@pytest.mark.parametrize("code", CODES)
def test_a_user_with_all_rights_on_all_resources_is_answered(broker: OneBroker, code: int) -> None:
    allow(broker, "All *")
    request = sound(broker, code)
    answer = ask_as(broker, USER, code, request.fields, request.body)
    assert "no matched policies" not in (answer.remark or "")
    assert answer.code != ResponseCode.NO_PERMISSION or request.code == answer.code, answer.remark


@pytest.mark.parametrize(
    ("rights", "code", "fields"),
    [
        (["Pub Topic:T"], SEND, send_fields("T")),
        (["Sub Topic:T", "Sub Group:g"], PULL, pull_fields("T")),
        (["Sub Group:g"], PULL, pull_fields("%RETRY%g")),
        (["Sub Group:g"], SEND, send_fields("%RETRY%g", a="CLIENT_INNER_PRODUCER")),
        (["Sub Topic:T", "Update Group:g"], RequestCode.UPDATE_CONSUMER_OFFSET, commit_fields(0)),
        (["Get Topic:T"], RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}),
        (["Sub Topic:T"], RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": "0"}),
        (["Get Cluster:GoldenCluster"], RequestCode.GET_BROKER_CONFIG, {}),
        (["Create Topic:N*"], RequestCode.UPDATE_AND_CREATE_TOPIC, NEW_TOPIC),
    ],
)
def test_each_right_is_needed_and_together_they_are_enough(
    broker: OneBroker, rights: list[str], code: int, fields: dict[str, str]
) -> None:
    for missing in rights:
        username = f"without-{missing.split(':')[0].replace(' ', '-')}"
        change(broker, PutUser(username, "u-secret", NEW_USER.user_type, NEW_USER.user_status))
        left = [right for right in rights if right != missing]
        if left:
            allow(broker, *left, username=username)
        answer = ask_as(broker, Credentials(username, "u-secret"), code, fields, b"m")
        assert answer.code == ResponseCode.NO_PERMISSION, missing
    allow(broker, *rights)
    assert ask_as(broker, USER, code, fields, b"m").code != ResponseCode.NO_PERMISSION


def test_what_a_proxy_asks_for_a_client_is_decided_by_the_clients_rights(broker: OneBroker) -> None:
    """A client of a proxy names messages by their place in the log, and only the broker finds out their topics."""
    sent = ask_as(broker, ROOT, SEND, send_fields("Secret"), b"m")
    _, phy_offset = decode_offset_message_id(sent.ext_fields["msgId"])
    fields = {"offset": str(phy_offset), "group": "g", "delayLevel": "-1", "unitMode": "false"}
    for_client = fields | {CLIENT_USER: "u", CLIENT_ADDRESS: "10.9.9.9"}
    allow(broker, "Sub Group:g", "Sub Topic:T")

    def ask(credentials: Credentials, fields: dict[str, str]) -> tuple[int, str | None]:
        answer = ask_as(broker, credentials, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
        return answer.code, answer.remark

    no_right = "User:u has no permission to access Topic:Secret from 10.9.9.9, no matched policies."
    assert ask(ROOT, for_client) == (ResponseCode.NO_PERMISSION, no_right)
    assert ask(ROOT, for_client | {CLIENT_USER: "nobody"})[1] == "User:nobody is not found."
    as_super = ask(USER, fields | {CLIENT_USER: "root", CLIENT_ADDRESS: "10.9.9.9"})
    assert as_super == (ResponseCode.NO_PERMISSION, no_right.replace("10.9.9.9", "10.1.2.3"))
    allow(broker, "Sub Topic:Secret 10.9.0.0/16")
    assert ask(ROOT, for_client) == (ResponseCode.SUCCESS, None)


@pytest.mark.parametrize(
    ("told", "source_ip"),
    [("10.9.9.9" * 100_000, ""), ("fe80::1%" + "\x1b[2J" * 100_000, "fe80::1"), ("::1", "::1"), ("", "")],
)
def test_the_address_of_a_proxys_client_is_one(broker: OneBroker, told: str, source_ip: str) -> None:
    """It goes into decisions that are remembered, and into the audit."""
    fields = {"topic": "T", CLIENT_USER: "u", CLIENT_ADDRESS: told}
    remark = ask_as(broker, ROOT, RequestCode.DELETE_TOPIC_IN_BROKER, fields).remark
    assert remark == (f"User:u has no permission to access Topic:T from {source_ip}, no matched policies.")


def test_a_group_gives_back_what_it_popped_from_its_retry_topic(broker: OneBroker) -> None:
    sent = ask_as(broker, ROOT, SEND, send_fields("%RETRY%g_T"), b"m")
    _, phy_offset = decode_offset_message_id(sent.ext_fields["msgId"])
    fields = {"offset": str(phy_offset), "group": "g", "delayLevel": "-1", "unitMode": "false"}
    allow(broker, "Sub Group:g", "Sub Topic:T")
    answer = ask_as(broker, USER, RequestCode.CONSUMER_SEND_MSG_BACK, fields)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)


def test_another_groups_retry_topic_is_not_read_with_the_right_to_ones_own(broker: OneBroker) -> None:
    """RocketMQ asks for the group that the request names, and gives any retry topic."""
    allow(broker, "Sub Group:g", "Sub Topic:T")
    answer = ask_as(broker, USER, PULL, pull_fields("%RETRY%other"))
    assert (
        answer.remark == "User:u has no permission to access Group:other from 10.1.2.3, no matched policies."
    )


def test_short_names_in_a_send_of_long_ones_lead_to_no_other_topic(broker: OneBroker) -> None:
    """The check reads the long names; so does the handler."""
    allow(broker, "Pub Topic:Mine")
    change_of_topic = sound_requests()[RequestCode.SEND_MESSAGE].fields | {"topic": "Mine", "b": "T"}
    answer = ask_as(broker, USER, RequestCode.SEND_MESSAGE, change_of_topic, b"m")
    assert answer.code == ResponseCode.SUCCESS
    assert broker.store.reads.max_offset("Mine", int(answer.ext_fields["queueId"])) == 1
    assert broker.store.reads.max_offset("T", 0) == 1, "the one of the fixture"


def test_a_message_by_its_offset_is_given_to_those_who_may_read_its_topic(broker: OneBroker) -> None:
    sent = ask_as(broker, ROOT, SEND, send_fields("T"), b"m")
    fields = {"offset": str(int(sent.ext_fields["msgId"][-16:], 16)), "topic": "Mine"}
    send_back = sound_requests(sent.ext_fields["msgId"])[RequestCode.CONSUMER_SEND_MSG_BACK].fields
    allow(broker, "Get,Sub Topic:Mine", "Sub Group:g")
    for code, asked in (
        (RequestCode.VIEW_MESSAGE_BY_ID, fields),
        (RequestCode.CONSUMER_SEND_MSG_BACK, send_back),
    ):
        answer = ask_as(broker, USER, code, asked)
        assert (
            answer.remark == "User:u has no permission to access Topic:T from 10.1.2.3, no matched policies."
        )
    allow(broker, "Get,Sub Topic:T")
    assert ask_as(broker, USER, RequestCode.VIEW_MESSAGE_BY_ID, fields).code == ResponseCode.SUCCESS
    assert ask_as(broker, USER, RequestCode.CONSUMER_SEND_MSG_BACK, send_back).code == ResponseCode.SUCCESS


def test_entries_of_the_store_itself_are_given_to_nobody(broker: OneBroker) -> None:
    """A record of the table of users has their secrets."""
    log = broker.replica.log
    system = 0
    for index in range(int(log.ledger_begin_index), int(log.ledger_end_index) + 1):
        pos = log.pos_at(index)  # type: ignore[arg-type]
        offset = {"offset": str(int(pos) + 48)}
        answer = ask_as(broker, ROOT, RequestCode.VIEW_MESSAGE_BY_ID, offset)
        assert b"u-secret" not in bytes(answer.body)
        system += answer.code == ResponseCode.SYSTEM_ERROR
    assert system >= 3


def test_a_heartbeat_needs_each_group_and_topic_of_its_consumers(broker: OneBroker) -> None:
    def beat(topics: tuple[str, ...]) -> int:
        body = heart_beat("c1", topics=topics)
        return ask_as(broker, USER, RequestCode.HEART_BEAT, {}, body).code

    allow(broker, "Sub Group:g", "Sub Topic:A")
    assert beat(("A", "%RETRY%g")) == ResponseCode.SUCCESS
    assert beat(("A", "B")) == ResponseCode.NO_PERMISSION
    assert beat(("A", "%RETRY%h")) == ResponseCode.NO_PERMISSION


def test_each_user_may_write_traces_and_nobody_else(broker: OneBroker) -> None:
    fields = send_fields("RMQ_SYS_TRACE_TOPIC")
    assert ask_as(broker, USER, SEND, fields, b"m").code != ResponseCode.NO_PERMISSION
    assert ask_as(broker, None, SEND, fields, b"m").code == ResponseCode.NO_PERMISSION
    assert ask_as(broker, USER, PULL, pull_fields("RMQ_SYS_TRACE_TOPIC")).code == ResponseCode.NO_PERMISSION


def test_pop_consumers_acknowledge_what_came_from_their_groups_retry_topics(broker: OneBroker) -> None:
    allow(broker, "Sub Group:pop", "Sub Topic:T")
    ack = sound_requests()[RequestCode.ACK_MESSAGE].fields
    for topic in ("T", "%RETRY%pop_T", "%RETRY%pop+T"):
        answer = ask_as(broker, USER, RequestCode.ACK_MESSAGE, ack | {"topic": topic})
        assert answer.code != ResponseCode.NO_PERMISSION, topic
    for topic in ("%RETRY%popular_T", "%RETRY%popular+T", "U"):
        answer = ask_as(broker, USER, RequestCode.ACK_MESSAGE, ack | {"topic": topic})
        assert answer.code == ResponseCode.NO_PERMISSION, topic


def test_a_change_of_users_and_policies_counts_on_an_open_connection(broker: OneBroker) -> None:
    channel = RecordingChannel(9, "10.1.2.3:4")

    def send() -> int:
        command = signed(broker.new_request(SEND, send_fields("T"), b"m"), USER)
        broker.receive([command], channel)
        broker.settle()
        broker.run_until(lambda: channel.response_to(command.opaque) is not None)
        answer = channel.response_to(command.opaque)
        assert answer is not None
        return answer.code

    assert send() == ResponseCode.NO_PERMISSION
    allow(broker, "Pub Topic:T")
    assert send() == ResponseCode.SUCCESS
    deny = make_entry("Topic:T", ["Pub"], [], "Deny")
    change(broker, PutPolicyEntries("u", PolicyType.CUSTOM, (deny,)))
    assert send() == ResponseCode.NO_PERMISSION
    allow(broker, "Pub Topic:T")
    change(broker, PutUser("u", "other-secret", None, None))
    assert send() == ResponseCode.NO_PERMISSION
    change(broker, PutUser("u", "u-secret", None, None))
    assert send() == ResponseCode.SUCCESS
    change(broker, DeleteUser("u"))
    assert send() == ResponseCode.NO_PERMISSION


def test_sends_of_one_read_are_refused_each_by_itself(broker: OneBroker) -> None:
    allow(broker, "Pub Topic:T")
    commands = [
        signed(broker.new_request(SEND, send_fields("T"), b"m"), USER),
        broker.new_request(SEND, send_fields("T"), b"m"),
        signed(broker.new_request(SEND, send_fields("U"), b"m"), USER),
        signed(broker.new_request(SEND, send_fields("T"), b"m"), USER),
    ]
    broker.receive(commands)
    broker.settle()
    answers = [broker.channel.response_to(command.opaque) for command in commands]
    codes = [answer.code for answer in answers if answer is not None]
    assert codes == [0, ResponseCode.NO_PERMISSION, ResponseCode.NO_PERMISSION, 0]


def test_a_oneway_request_that_is_refused_gets_no_answer(broker: OneBroker) -> None:
    broker.receive([broker.new_request(RequestCode.UNREGISTER_CLIENT, {"clientID": "c"}, oneway=True)])
    broker.receive([broker.new_request(SEND, send_fields("T"), b"m", oneway=True)])
    broker.settle()
    assert broker.channel.received == []


@pytest.mark.parametrize("field", ["a", "b", "e", "i", "AccessKey", "Signature"])
def test_a_field_that_is_altered_or_cut_after_signing_is_refused(broker: OneBroker, field: str) -> None:
    allow(broker, "All *")

    def ask(spoil: bool) -> RemotingCommand:
        command = signed(broker.new_request(SEND, send_fields("T"), b"m"), USER)
        if spoil:
            command.ext_fields[field] = command.ext_fields[field][:-1]
        return answer_to(broker, command)

    assert ask(False).code == ResponseCode.SUCCESS
    assert ask(True).code == ResponseCode.NO_PERMISSION


def test_fields_in_another_order_are_the_same_request(broker: OneBroker) -> None:
    allow(broker, "Pub Topic:T")
    command = signed(broker.new_request(SEND, send_fields("T"), b"m"), USER)
    command.ext_fields = dict(reversed(command.ext_fields.items()))
    assert answer_to(broker, command).code == ResponseCode.SUCCESS


def test_codes_of_the_white_lists_are_not_checked(tmp_path: Path) -> None:
    conf = f"{CONF}authenticationWhitelist=310,11\nauthorizationWhitelist=310\n"
    with secured_broker(tmp_path, conf) as broker:
        assert ask_as(broker, None, SEND, send_fields("T"), b"m").code == ResponseCode.SUCCESS
        assert ask_as(broker, None, PULL, pull_fields("T")).remark == "username cannot be null."
        assert ask_as(broker, None, RequestCode.SEND_MESSAGE).code == ResponseCode.NO_PERMISSION


def test_a_refusal_is_a_line_in_the_log_without_the_signature(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    ask_as(broker, USER, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
    (refused,) = [record.getMessage() for record in caplog.records if "refused" in record.getMessage()]
    assert refused == (
        "refused code=215 user='u' addr=10.1.2.3:50007 rule='no policy matches' remark='User:u has no permission to "
        "access Topic:T from 10.1.2.3, no matched policies.'"
    )
    signature = USER.signed({"topic": "T"}, b"", 513)["Signature"]
    assert signature not in caplog.text


def test_nobody_is_given_messages_of_a_transaction_that_may_not_write_to_their_topic(
    broker: OneBroker,
) -> None:
    allow(broker, "Pub Topic:T")
    change(broker, PutUser("spy", "s", UserType.NORMAL, UserStatus.ENABLE))
    heartbeat = HeartbeatData(client_id="c", producer_data_set=[ProducerData(group_name="p")]).encode()

    def producer(channel_id: int, credentials: Credentials) -> RecordingChannel:
        channel = RecordingChannel(channel_id)
        command = signed(broker.new_request(RequestCode.HEART_BEAT, {}, heartbeat), credentials)
        broker.receive([command], channel)
        broker.settle()
        return channel

    def asked(channel: RecordingChannel) -> int:
        return sum(command.code == RequestCode.CHECK_TRANSACTION_STATE for command in channel.received)

    spy, own = producer(8, Credentials("spy", "s")), producer(9, USER)
    text = "TRAN_MSG\x01true\x02UNIQ_KEY\x01ID\x02PGROUP\x01p\x02"
    for _ in range(2):
        answer = ask_as(broker, USER, SEND, send_fields("T", 0, text, f="4"), b"m")
        assert answer.code == ResponseCode.SUCCESS
    broker.run_until(lambda: asked(own) == 2, 60_000)
    assert asked(spy) == 0
    change(broker, PutUser("u", None, None, UserStatus.DISABLE))
    broker.run_for(60_000)
    assert (asked(own), asked(spy)) == (2, 0)
