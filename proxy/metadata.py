"""The types of topics and the configurations of consumer groups, as brokers tell them: RocketMQ's MetadataService.

They are refreshed every few seconds. A caller waits at most `WAIT_S` for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from mqclient.errors import BrokerResponseError, MQClientError, NoAnswerError
from proxy.brokers import Brokers
from proxy.status import StatusError
from remoting.bodies.bodies import RemotingBody, SubscriptionGroupConfig
from remoting.bodies.topic_bodies import TopicConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import RemotingTimeoutError

COUNT_MAX: Final = 20_000
# Clients wait a second for their settings, which need the configuration of a group.
WAIT_S: Final = 0.7
ASK_AGAIN_S: Final = 1.0  # after an attempt that failed
MIXED: Final = "MIXED"
_TYPE_ATTRIBUTE: Final = "message.type"
# The broker does not know the group, or is too old to know the request: the group has the defaults of a new one.
_AS_A_NEW_GROUP: Final = frozenset(
    {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
)

ValueT = TypeVar("ValueT")
BodyT = TypeVar("BodyT", bound=RemotingBody)


class Metadata:
    def __init__(self, brokers: Brokers, *, topic_fresh_s: float, group_fresh_s: float) -> None:
        self._brokers = brokers
        self._topics = _RefreshingCache(brokers, self._ask_topic_type, topic_fresh_s)
        self._groups = _RefreshingCache(brokers, self._ask_group, group_fresh_s)

    async def topic_type(self, topic: str) -> str:
        """Return NORMAL, FIFO, DELAY, TRANSACTION, …; MIXED, which takes all of them, if no broker tells the type."""
        try:
            return await self._topics.get(topic, topic)
        except (MQClientError, StatusError):
            return MIXED

    async def known_group_config(self, group: str, topic: str) -> SubscriptionGroupConfig:
        """Return the configuration that a broker of `topic` has for the group, or will give it.

        Raises MQClientError and StatusError if no broker tells it.
        """
        return await self._groups.get(group, topic)

    async def group_config(self, group: str, topic: str) -> SubscriptionGroupConfig:
        """Like known_group_config(), but return the configuration of a new group if no broker tells it."""
        try:
            return await self.known_group_config(group, topic)
        except (MQClientError, StatusError):
            return SubscriptionGroupConfig(group_name=group)

    async def _ask_topic_type(self, topic: str, _: str) -> str:
        config = await self._ask(topic, RequestCode.GET_TOPIC_CONFIG, {"topic": topic}, TopicConfig)
        return (config.attributes or {}).get(_TYPE_ATTRIBUTE, "NORMAL").upper()

    async def _ask_group(self, group: str, topic: str) -> SubscriptionGroupConfig:
        code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
        try:
            return await self._ask(topic, code, {"group": group}, SubscriptionGroupConfig)
        except BrokerResponseError as error:
            if error.code not in _AS_A_NEW_GROUP:
                raise
            return SubscriptionGroupConfig(group_name=group)

    async def _ask(self, topic: str, code: RequestCode, fields: dict[str, str], body: type[BodyT]) -> BodyT:
        """Ask the brokers of the topic one after the other. Return the first answer, read as `body`."""
        route = await self._brokers.routes.route(topic)
        names = sorted(route.brokers, key=lambda name: (route.master_address(name) is None, name))
        for name in names[:-1]:
            with suppress(MQClientError):
                return (await self._brokers.ask_once(topic, name, code, fields)).read(body)
        return (await self._brokers.ask(topic, names[-1] if names else "", code, fields)).read(body)


@dataclass(slots=True)
class _CachedValue(Generic[ValueT]):
    value: ValueT | None = None
    error: MQClientError | StatusError | None = None  # of the last attempt, if it failed
    fresh_until: float = 0.0


class _RefreshingCache(Generic[ValueT]):
    """Values by name. A value that is no longer fresh is still returned while it is refreshed, or no broker answers."""

    def __init__(
        self, brokers: Brokers, ask: Callable[[str, str], Awaitable[ValueT]], fresh_s: float
    ) -> None:
        self._brokers = brokers
        self._ask = ask
        self._fresh_s = fresh_s
        self._values: dict[str, _CachedValue[ValueT]] = {}
        self._refreshing: dict[str, asyncio.Task[None]] = {}

    async def get(self, name: str, topic: str) -> ValueT:
        """Return the value, which brokers of `topic` know.

        Raises MQClientError and StatusError if none of them has ever told it.
        """
        cached = self._values.get(name)
        if cached is None:
            while len(self._values) >= COUNT_MAX:
                del self._values[next(iter(self._values))]
            cached = self._values[name] = _CachedValue()
        if asyncio.get_running_loop().time() >= cached.fresh_until:
            refreshing = self._refreshing.get(name)
            if refreshing is None:
                refreshing = self._refreshing[name] = self._brokers.tasks.spawn(
                    self._refresh(cached, name, topic)
                )
                refreshing.add_done_callback(lambda _: self._refreshing.pop(name, None))
            if cached.value is None:
                await asyncio.wait({refreshing}, timeout=WAIT_S)
        if cached.value is not None:
            return cached.value
        if cached.error is not None:
            raise cached.error.with_traceback(None)
        late = RemotingTimeoutError(f"no broker of topic {topic} has said anything of {name} yet")
        raise NoAnswerError(late) from late

    async def _refresh(self, cached: _CachedValue[ValueT], name: str, topic: str) -> None:
        fresh_s = self._fresh_s
        try:
            cached.value, cached.error = await self._ask(name, topic), None
        except (MQClientError, StatusError) as error:
            cached.error = error
            fresh_s = min(fresh_s, ASK_AGAIN_S)
        cached.fresh_until = asyncio.get_running_loop().time() + fresh_s
