"""Typed headers: Java's toString forms, required fields, ranges, and the two names of a send."""

from __future__ import annotations

import pytest

from remoting.codes import RequestCode
from remoting.errors import RemotingHeaderError
from remoting.headers import headers

V2 = {
    "a": "group",
    "b": "topic",
    "c": "TBW102",
    "d": "4",
    "e": "-1",
    "f": "769",
    "g": "1700000000000",
    "h": "0",
    "i": "KEYS\x01k\x02",
    "j": "0",
    "k": "false",
    "l": "16",
    "m": "true",
    "n": "broker-a",
}
V1 = {
    "producerGroup": "group",
    "topic": "topic",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "-1",
    "sysFlag": "769",
    "bornTimestamp": "1700000000000",
    "flag": "0",
    "properties": "KEYS\x01k\x02",
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "true",
    "maxReconsumeTimes": "16",
}


@pytest.mark.parametrize(
    ("code", "ext_fields"),
    [
        (RequestCode.SEND_MESSAGE, V1),
        (RequestCode.SEND_MESSAGE_V2, V2),
        (RequestCode.SEND_BATCH_MESSAGE, V2),
    ],
)
def test_both_forms_of_a_send_header_read_alike(code: int, ext_fields: dict[str, str]) -> None:
    header = headers.decode_send_message(code, ext_fields)
    assert (header.producer_group, header.topic, header.queue_id) == ("group", "topic", -1)
    assert (header.sys_flag, header.born_timestamp) == (769, 1_700_000_000_000)
    assert (header.unit_mode, header.batch, header.max_reconsume_times) == (False, True, 16)
    assert header.properties == "KEYS\x01k\x02"
    assert headers.to_ext_fields(header) == ext_fields


def test_null_fields_are_left_out_and_others_written_in_java_form() -> None:
    header = headers.GetRouteInfoRequestHeader(topic="T", accept_standard_json_only=True)
    assert headers.to_ext_fields(header) == {"topic": "T", "acceptStandardJsonOnly": "true"}
    header = headers.GetRouteInfoRequestHeader(topic="T", oway=False)
    assert headers.to_ext_fields(header) == {"oway": "false", "topic": "T"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"a": None}, "a"),
        ({"g": None}, "g"),
        ({"d": "four"}, "d"),
        ({"d": ""}, "d"),
        ({"e": "2147483648"}, "e"),
        ({"e": "-2147483649"}, "e"),
        ({"g": "9223372036854775808"}, "g"),
        ({"h": "1.5.5"}, "h"),
        ({"m": "perhaps"}, "m"),
    ],
)
def test_a_missing_or_bad_field_is_named(changes: dict[str, str | None], field: str) -> None:
    changed = {**V2, **changes}
    with pytest.raises(RemotingHeaderError, match=f"SendMessageRequestHeaderV2.*{field}") as caught:
        headers.decode(
            headers.SendMessageRequestHeaderV2,
            {key: value for key, value in changed.items() if value is not None},
        )
    assert caught.value.field == field


def test_the_limits_of_java_s_int_and_long_are_taken() -> None:
    header = headers.decode_send_message(
        RequestCode.SEND_MESSAGE_V2, {**V2, "e": "2147483647", "g": "-9223372036854775808"}
    )
    assert (header.queue_id, header.born_timestamp) == (2_147_483_647, -(1 << 63))


def test_an_empty_string_counts_as_null_where_the_type_cannot_be_empty() -> None:
    header = headers.decode_send_message(RequestCode.SEND_MESSAGE_V2, {**V2, "j": "", "l": "", "i": ""})
    assert (header.reconsume_times, header.max_reconsume_times, header.properties) == (None, None, None)
    assert headers.decode_send_message(RequestCode.SEND_MESSAGE_V2, {**V2, "i": ""}).properties == ""


def test_primitives_that_a_peer_left_out_have_java_s_defaults() -> None:
    header = headers.decode(headers.GetMaxOffsetRequestHeader, {"topic": "T", "queueId": "0"})
    assert header.committed is True
    back = headers.decode(
        headers.ConsumerSendMsgBackRequestHeader, {"offset": "1", "group": "g", "delayLevel": "0"}
    )
    assert back.unit_mode is False


def test_names_that_are_not_camel_case_of_ours_are_java_s() -> None:
    ext_fields = headers.to_ext_fields(
        headers.UnregisterClientRequestHeader(client_id="c", producer_group="p")
    )
    assert ext_fields == {"clientID": "c", "producerGroup": "p"}
    register = headers.RegisterBrokerRequestHeader(
        broker_name="b", broker_addr="a", cluster_name="c", ha_server_addr="h", broker_id=0, body_crc32=7
    )
    assert headers.to_ext_fields(register)["bodyCrc32"] == "7"
    assert headers.to_ext_fields(register)["compressed"] == "false"


def test_fields_of_no_header_are_ignored() -> None:
    assert headers.decode(headers.GetMinOffsetResponseHeader, {"offset": "3", "ReqT": "0"}).offset == 3
