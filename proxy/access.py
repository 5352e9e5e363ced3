"""Whether a client of the proxy may do what it asks for: brokers say so, since they have the users and policies.

A client signs the time of each call. What a broker has said of a signature and of what was asked for is kept for a
second. Without an answer of a broker the client is refused.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from auth.authentication import CLIENT_ADDRESS, CLIENT_USER, host_of
from auth.user import NAME_LENGTH_MAX
from mqclient.errors import MQClientError, RouteNotFoundError
from proxy.brokers import Brokers, time_left_s
from proxy.grpc.call import Call
from proxy.protocol.definition import Code
from proxy.status import StatusError
from remoting.bodies.auth_bodies import AccessNeed, CheckAccessRequestBody, CheckAccessResponseBody
from remoting.codes import RequestCode

log = logging.getLogger(__name__)

AUTHORIZATION: Final = "authorization"
DATE_TIME: Final = "x-mq-date-time"
KEPT_S: Final = 1.0
KEPT_COUNT_MAX: Final = 10_000
_ANSWER_S: Final = 1.0  # that each broker has


class Need(msgspec.Struct, frozen=True):
    """Of a topic or a group; one of the actions is enough."""

    resource: str  # `Topic:name`
    actions: tuple[str, ...]


def publishes(topic: str) -> Need:
    return Need(f"Topic:{topic}", ("Pub",))


def subscribes(topic: str) -> Need:
    return Need(f"Topic:{topic}", ("Sub",))


def looks_up(topic: str) -> Need:
    return Need(f"Topic:{topic}", ("Get", "Pub", "Sub"))


def belongs_to(group: str) -> Need:
    return Need(f"Group:{group}", ("Sub",))


class Signature(msgspec.Struct, frozen=True):
    """Who a client says that it is, and the proof of it, in base64. Without a user an empty text."""

    username: str
    content: str
    proof: str


class _Question(msgspec.Struct, frozen=True):
    signature: Signature
    source_ip: str
    needs: tuple[Need, ...]


class Access:
    """Invariant: where it is on, nothing passes that no broker has allowed within the last seconds."""

    def __init__(self, brokers: Brokers, *, is_on: bool) -> None:
        self._brokers = brokers
        self._is_on = is_on
        self._answers: dict[_Question, asyncio.Future[CheckAccessResponseBody | MQClientError]] = {}

    async def check(self, call: Call, needs: Iterable[Need], topic: str = "") -> None:
        """Raises StatusError: UNAUTHORIZED for a client that is not who it says, FORBIDDEN for what it may not do.

        Brokers of `topic` are asked; without one, or where nobody knows it, any broker of the cluster.
        """
        if not self._is_on:
            return
        question = _Question(signature_of(call), host_of(call.peer), tuple(dict.fromkeys(needs)))
        asking = self._answers.get(question)
        if asking is None:
            if len(self._answers) >= KEPT_COUNT_MAX:
                del self._answers[next(iter(self._answers))]
            loop = asyncio.get_running_loop()
            asking = self._answers[question] = loop.create_future()
            loop.call_later(KEPT_S, self._forget, question, asking)
            self._brokers.tasks.spawn(self._ask(question, topic, asking))
        username = question.signature.username
        answer: CheckAccessResponseBody | MQClientError | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(time_left_s(call)):
                answer = await asyncio.shield(asking)
        if not isinstance(answer, CheckAccessResponseBody):
            raise StatusError(
                Code.INTERNAL_SERVER_ERROR,
                f"no broker has said whether {username!r} may do this: {answer or 'the time is over'}",
            )
        if not answer.allowed:
            log.warning(
                "refused method=%s user=%r peer=%s remark=%r",
                *(call.path, username, call.peer, answer.remark),
                extra={"per_connection": True},
            )
            raise StatusError(Code.FORBIDDEN if answer.authenticated else Code.UNAUTHORIZED, answer.remark)

    def client_fields(self, call: Call) -> dict[str, str]:
        """For a request about a message that the client names by its place in the log. Only the broker finds out its
        topic, and decides by the rights of the client then.
        """
        if not self._is_on:
            return {}
        return {CLIENT_USER: signature_of(call).username, CLIENT_ADDRESS: host_of(call.peer)}

    def _forget(
        self, question: _Question, asking: asyncio.Future[CheckAccessResponseBody | MQClientError]
    ) -> None:
        if self._answers.get(question) is asking:
            del self._answers[question]

    async def _ask(
        self,
        question: _Question,
        topic: str,
        told: asyncio.Future[CheckAccessResponseBody | MQClientError],
    ) -> None:
        """The members are asked one after the other, the leaders first: others decide by what they have applied."""
        signature = question.signature
        body = CheckAccessRequestBody(
            username=signature.username,
            content=signature.content,
            signature=signature.proof,
            source_ip=question.source_ip,
            needs=[AccessNeed(resource=need.resource, actions=list(need.actions)) for need in question.needs],
        ).encode()
        outcome: CheckAccessResponseBody | MQClientError = RouteNotFoundError("no broker is known")
        try:
            for address in await self._addresses(topic):
                try:
                    answer = await self._brokers.api.call(
                        address, RequestCode.CHECK_ACCESS, {}, body, timeout_s=_ANSWER_S
                    )
                    outcome = answer.read(CheckAccessResponseBody)
                    break
                except MQClientError as error:
                    outcome = error
        except MQClientError as error:
            outcome = error
        if not told.done():
            told.set_result(outcome)

    async def _addresses(self, topic: str) -> list[str]:
        """Raises MQClientError where nobody knows any."""
        with suppress(RouteNotFoundError):
            if topic:
                return _leaders_first((await self._brokers.routes.route(topic)).brokers.values())
        info = await self._brokers.cluster_info()
        return _leaders_first(broker.broker_addrs for broker in info.broker_addr_table.values())


def username_of(call: Call) -> str:
    """The username in the call's credentials, or "" if it has none. Only Access.check() proves that it is true."""
    username = _credentials_of(call).get("Credential", "").partition("/")[0]
    return username if len(username) <= NAME_LENGTH_MAX else ""


def signature_of(call: Call) -> Signature:
    """Raises StatusError, in RocketMQ's words, for a call whose metadata has none."""
    header, date_time = call.metadata.get(AUTHORIZATION, ""), call.metadata.get(DATE_TIME, "")
    if not header:
        raise _unauthorized("username cannot be null.")
    if not date_time:
        raise _unauthorized("datetime is null.")
    pairs = _credentials_of(call)
    try:
        proof = base64.b64encode(bytes.fromhex(pairs.get("Signature", ""))).decode()
    except ValueError:
        proof = ""
    username = pairs.get("Credential", "").partition("/")[0]
    if len(username) + len(date_time) + len(proof) > NAME_LENGTH_MAX:
        raise _unauthorized("check signature failed.")  # what is kept is bounded
    return Signature(username, date_time, proof)


def _credentials_of(call: Call) -> dict[str, str]:
    """`Credential=…, Signature=…` behind the name of the algorithm; the first of each counts."""
    pairs: dict[str, str] = {}
    for item in call.metadata.get(AUTHORIZATION, "").partition(" ")[2].split(","):
        key, _, value = item.strip().partition("=")
        pairs.setdefault(key, value)
    return pairs


def _unauthorized(message: str) -> StatusError:
    return StatusError(Code.UNAUTHORIZED, message)


def _leaders_first(brokers: Iterable[Mapping[int, str]]) -> list[str]:
    """By broker id: the leader of a group has 0, and a group that elects has none."""
    by_id = sorted((broker_id, address) for addresses in brokers for broker_id, address in addresses.items())
    return [address for _, address in by_id]
