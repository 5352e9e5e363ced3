"""The settings in the answer to a client: its own, and what the proxy and the brokers decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proxy.config import ProxyConfig
from proxy.messages.times import set_ms
from proxy.protocol.definition import Settings
from remoting.bodies.bodies import SubscriptionGroupConfig

_CUSTOMIZED_MS: Final = tuple(
    1000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
ATTEMPTS_MAX: Final = 2**31 - 1  # that a client can be told of; a group may retry without end
_NUMBER_MAX: Final = 2**48  # of a retry policy: what a client can be told
_EXPONENTIAL: Final[Mapping[str, Any]] = {"initial": 5_000, "max": 7_200_000, "multiplier": 2}


def producer_settings(own: Settings, config: ProxyConfig) -> Settings:
    merged = _copy(own)
    policy = merged.backoff_policy
    policy.max_attempts = config.grpc_client_producer_max_attempts
    _set_exponential(
        policy.exponential_backoff,
        initial_ms=config.grpc_client_producer_backoff_initial_ms,
        max_ms=config.grpc_client_producer_backoff_max_ms,
        multiplier=config.grpc_client_producer_backoff_multiplier,
    )
    merged.publishing.validate_message_type = config.enable_topic_message_type_check
    merged.publishing.max_body_size = config.max_message_size
    return merged


def consumer_settings(own: Settings, config: ProxyConfig, group: SubscriptionGroupConfig) -> Settings:
    merged = _copy(own)
    subscription = merged.subscription
    subscription.fifo = bool(group.consume_message_orderly)
    subscription.receive_batch_size = config.grpc_client_consumer_long_polling_batch_size
    set_ms(subscription.long_polling_timeout, config.grpc_client_consumer_max_long_polling_timeout_ms)
    merged.backoff_policy.max_attempts = min(group.retry_max_times + 1, ATTEMPTS_MAX)
    retry = group.group_retry_policy or {}
    if retry.get("type") == "EXPONENTIAL":
        given = retry.get("exponentialRetryPolicy")
        numbers = given.items() if isinstance(given, dict) else ()
        times = {**_EXPONENTIAL, **{name: number for name, number in numbers if _is_number(number)}}
        _set_exponential(
            merged.backoff_policy.exponential_backoff,
            initial_ms=int(times["initial"]),
            max_ms=int(times["max"]),
            multiplier=float(times["multiplier"]),
        )
        return merged
    given = retry.get("customizedRetryPolicy")
    nexts = given.get("next") if isinstance(given, dict) else None
    backoff = merged.backoff_policy.customized_backoff
    backoff.ClearField("next")
    for ms in filter(_is_number, nexts) if isinstance(nexts, list) else _CUSTOMIZED_MS:
        set_ms(backoff.next.add(), int(ms))
    return merged


def _is_number(value: object) -> bool:
    """Whether a value of a retry policy, which brokers store as they get it, means anything."""
    return isinstance(value, int | float) and 0 <= value <= _NUMBER_MAX


def _copy(own: Settings) -> Settings:
    """Copy the settings, and add `metric`: some clients take none without it. Their measurements are not collected."""
    merged = Settings()
    merged.CopyFrom(own)
    merged.metric.on = False
    return merged


def _set_exponential(backoff: Any, *, initial_ms: int, max_ms: int, multiplier: float) -> None:
    set_ms(backoff.initial, initial_ms)
    set_ms(backoff.max, max_ms)
    backoff.multiplier = multiplier
