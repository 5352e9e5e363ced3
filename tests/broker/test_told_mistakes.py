"""Requests that cannot be read: the answer says what is wrong, and where. RocketMQ answers the same code with an
exception's text, or takes the request for another one.
"""

from __future__ import annotations

import pytest
from one_broker import OneBroker

from remoting.codes import RequestCode, ResponseCode

QUERY = {"topic": "T", "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "9"}


@pytest.mark.parametrize("code", [RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ])
@pytest.mark.parametrize("is_follower", [False, True])
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "body of 0 bytes: a value expected: line 1 column 1 (char 0)"),
        (b"queues", "body of 6 bytes: a value expected: line 1 column 1 (char 0)"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"mqSet":3}', "Expected `object`, got `int` - at `$.mqSet[0]`"),
    ],
)
def test_a_lock_that_is_no_json_is_told_by_every_member(
    broker: OneBroker, code: RequestCode, is_follower: bool, body: bytes, reason: str
) -> None:
    """A follower refuses a sound one with 14, as long as it does not lead; this one is refused for good."""
    if is_follower:
        broker.step_down()
    answer = broker.ask(code, {}, body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"LockBatchRequestBody: {reason}")


@pytest.mark.parametrize(("said", "is_read"), [("true", True), ("", True), ("garbage", False)])
def test_a_query_whose_switch_is_no_boolean_is_told(broker: OneBroker, said: str, is_read: bool) -> None:
    answer = broker.ask(RequestCode.QUERY_MESSAGE, {**QUERY, "_UNIQUE_KEY_QUERY": said})
    if is_read:
        assert answer.code == ResponseCode.QUERY_NOT_FOUND
    else:
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "QueryMessageRequestHeader: Expected `bool | null`, got `str` - at `$._UNIQUE_KEY_QUERY`, it is 'garbage'",
        )


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"[]", "Expected `object`, got `array`"),
        (b"3", "Expected `object`, got `int`"),
        (b"null", "Expected `object`, got `null`"),
        (b"{", "body of 1 bytes: a value expected: line 1 column 2 (char 1)"),
        (b'{"subscriptionData":3}', "Expected `object | null`, got `int` - at `$.subscriptionData`"),
    ],
)
def test_a_check_of_what_is_no_client_is_told(broker: OneBroker, body: bytes, reason: str) -> None:
    answer = broker.ask(RequestCode.CHECK_CLIENT_CONFIG, {}, body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, f"CheckClientRequestBody: {reason}")
    assert broker.ask(RequestCode.CHECK_CLIENT_CONFIG).code == ResponseCode.SUCCESS, "some clients send none"
