"""What brokers say of topics and consumer groups, asked for again every few seconds and never waited for for long."""

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
# Clients wait a second for their settings.
WAIT_S: Final = 0.7
ASK_AGAIN_S: Final = 1.0  # after nobody has said
MIXED: Final = "MIXED"
_TYPE_ATTRIBUTE: Final = "message.type"
# An answer, too: the broker knows no such group, or it is older than the request.
_AS_A_NEW_GROUP: Final = frozenset(
    {ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
)

ValueT = TypeVar("ValueT")
BodyT = TypeVar("BodyT", bound=RemotingBody)


class Metadata:
    def __init__(self, brokers: Brokers, *, topic_fresh_s: float, group_fresh_s: float) -> None:
        self._brokers = brokers
        self._topics = _Asked(brokers, self._ask_topic_type, topic_fresh_s)
        self._groups = _Asked(brokers, self._ask_group, group_fresh_s)

    async def topic_type(self, topic: str) -> str:
        """NORMAL, FIFO, DELAY, TRANSACTION, …; MIXED, which takes all of them, where no broker says."""
        try:
            return await self._topics.get(topic, topic)
        except (MQClientError, StatusError):
            return MIXED

    async def known_group_config(self, group: str, topic: str) -> SubscriptionGroupConfig:
        """As a broker of `topic` has it, or will make it. Raises MQClientError, StatusError where no broker says."""
        return await self._groups.get(group, topic)

    async def group_config(self, group: str, topic: str) -> SubscriptionGroupConfig:
        """The same; a new group's, where no broker says."""
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
        """Of the first broker of the topic that says."""
        route = await self._brokers.routes.route(topic)
        names = sorted(route.brokers, key=lambda name: (route.master_address(name) is None, name))
        for name in names[:-1]:
            with suppress(MQClientError):
                return (await self._brokers.ask_once(topic, name, code, fields)).read(body)
        return (await self._brokers.ask(topic, names[-1] if names else "", code, fields)).read(body)


@dataclass(slots=True)
class _Said(Generic[ValueT]):
    value: ValueT | None = None
    error: MQClientError | StatusError | None = None  # that the last question ended in
    fresh_until: float = 0.0


class _Asked(Generic[ValueT]):
    """Values by name. One that is no longer fresh is given while it is asked for anew, or cannot be had."""

    def __init__(
        self, brokers: Brokers, ask: Callable[[str, str], Awaitable[ValueT]], fresh_s: float
    ) -> None:
        self._brokers = brokers
        self._ask = ask
        self._fresh_s = fresh_s
        self._said: dict[str, _Said[ValueT]] = {}
        self._asking: dict[str, asyncio.Task[None]] = {}

    async def get(self, name: str, topic: str) -> ValueT:
        """`topic`: one whose brokers know. Raises MQClientError, StatusError where none of them has ever said."""
        said = self._said.get(name)
        if said is None:
            while len(self._said) >= COUNT_MAX:
                del self._said[next(iter(self._said))]
            said = self._said[name] = _Said()
        if asyncio.get_running_loop().time() >= said.fresh_until:
            asking = self._asking.get(name)
            if asking is None:
                asking = self._asking[name] = self._brokers.spawn(self._refresh(said, name, topic))
                asking.add_done_callback(lambda _: self._asking.pop(name, None))
            if said.value is None:
                await asyncio.wait({asking}, timeout=WAIT_S)
        if said.value is not None:
            return said.value
        if said.error is not None:
            raise said.error.with_traceback(None)
        late = RemotingTimeoutError(f"no broker of topic {topic} has said anything of {name} yet")
        raise NoAnswerError(late) from late

    async def _refresh(self, said: _Said[ValueT], name: str, topic: str) -> None:
        fresh_s = self._fresh_s
        try:
            said.value, said.error = await self._ask(name, topic), None
        except (MQClientError, StatusError) as error:
            said.error = error
            fresh_s = min(fresh_s, ASK_AGAIN_S)
        said.fresh_until = asyncio.get_running_loop().time() + fresh_s
