"""Small values: where a message group goes, what a transaction's id holds, what clients are told to do."""

import pytest

from message.tags import java_hash
from proxy.config import ProxyConfig
from proxy.messages.consistent_hash import bucket_of, consistent_hash
from proxy.messages.settings import consumer_settings, producer_settings
from proxy.messages.transaction_id import TransactionId
from proxy.protocol.definition import ClientType, Settings
from remoting.bodies.bodies import SubscriptionGroupConfig

CONFIG = ProxyConfig(namesrv_addr=("127.0.0.1:1",))


def test_message_groups_go_where_rocketmqs_proxy_sends_them() -> None:
    assert [consistent_hash(key, 100) for key in range(6)] == [0, 55, 62, 8, 45, 59]
    assert java_hash("order-1") == -1207111310
    assert bucket_of("order-1", 8) == 3


@pytest.mark.parametrize("buckets", [1, 2, 7, 64])
def test_with_one_bucket_more_a_group_stays_or_goes_there(buckets: int) -> None:
    for number in range(500):
        before, after = bucket_of(f"g{number}", buckets), bucket_of(f"g{number}", buckets + 1)
        assert after in (before, buckets)


def test_a_transaction_id_says_where_the_message_lies() -> None:
    known = TransactionId("broker-a", 7, 123_456_789_012, "01 AB")
    assert TransactionId.decode(known.encode()) == known


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "7F00000100000000000000000000002A",
        "djEgYSBiIGMgZA==",
        "dDEgYiAtMSAyIGlk",
        "ü",
        "dDEgYiDCsiAyIGlk",
    ],
)
def test_what_is_no_transaction_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^" + text + "$"):
        TransactionId.decode(text)


def test_a_producer_is_told_how_to_try_again() -> None:
    own = Settings(client_type=ClientType.PRODUCER)
    own.publishing.topics.add(name="T")
    own.access_point.addresses.add(host="h", port=1)
    merged = producer_settings(own, CONFIG)
    assert merged.access_point == own.access_point
    assert [topic.name for topic in merged.publishing.topics] == ["T"]
    assert merged.publishing.validate_message_type
    assert merged.publishing.max_body_size == 4194304
    assert merged.backoff_policy.max_attempts == 3
    backoff = merged.backoff_policy.exponential_backoff
    assert (backoff.initial.nanos, backoff.max.seconds, backoff.multiplier) == (10_000_000, 1, 2)
    assert merged.HasField("metric")
    assert not merged.metric.on


def test_a_consumer_is_told_what_its_group_does() -> None:
    own = Settings(client_type=ClientType.PUSH_CONSUMER)
    own.subscription.group.name = "g"
    own.subscription.subscriptions.add().topic.name = "T"
    merged = consumer_settings(own, CONFIG, SubscriptionGroupConfig(consume_message_orderly=True))
    assert merged.subscription.fifo
    assert merged.subscription.receive_batch_size == 32
    assert merged.subscription.long_polling_timeout.seconds == 20
    assert merged.backoff_policy.max_attempts == 17
    nexts = [duration.seconds for duration in merged.backoff_policy.customized_backoff.next]
    assert (len(nexts), nexts[0], nexts[-1]) == (18, 1, 7200)
    assert merged.HasField("metric")


def test_a_groups_own_retry_policy_is_told() -> None:
    own = Settings()
    own.subscription.group.name = "g"
    own.backoff_policy.customized_backoff.next.add(seconds=9)
    customized = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [500, 3000]}}
    merged = consumer_settings(own, CONFIG, SubscriptionGroupConfig(group_retry_policy=customized))
    nexts = merged.backoff_policy.customized_backoff.next
    assert [(duration.seconds, duration.nanos) for duration in nexts] == [(0, 500_000_000), (3, 0)]
    exponential = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": 100, "multiplier": 3}}
    merged = consumer_settings(
        own, CONFIG, SubscriptionGroupConfig(retry_max_times=4, group_retry_policy=exponential)
    )
    backoff = merged.backoff_policy.exponential_backoff
    assert (backoff.initial.nanos, backoff.max.seconds, backoff.multiplier) == (100_000_000, 7200, 3)
    assert merged.backoff_policy.max_attempts == 5


@pytest.mark.parametrize("number", ["5s", None, -1, 10**30, [1]])
def test_numbers_of_a_retry_policy_that_mean_nothing_are_passed_over(number: object) -> None:
    """Brokers store what they are given."""
    customized = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [500, number]}}
    merged = consumer_settings(Settings(), CONFIG, SubscriptionGroupConfig(group_retry_policy=customized))
    assert len(merged.backoff_policy.customized_backoff.next) == 1
    exponential = {"type": "EXPONENTIAL", "exponentialRetryPolicy": {"initial": number}}
    merged = consumer_settings(Settings(), CONFIG, SubscriptionGroupConfig(group_retry_policy=exponential))
    assert merged.backoff_policy.exponential_backoff.initial.seconds == 5
