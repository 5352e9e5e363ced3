"""How the requests of tools reach NameServers and brokers, and what their failures mean.

Which address is asked: what any member knows is asked of the leader, or of another member while there is none; what
changes something only of the leader. NameServers share nothing, so what changes them goes to each.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from auth.client_credentials import signer_of
from auth.credentials import Credentials
from message.decoder import MessageExt
from message.errors import MessageError
from message.received_messages import received_messages
from mqclient.answer import Answer
from mqclient.client_api import ClientApi
from mqclient.client_instance import parse_namesrv
from mqclient.connecting import connect_of_environment
from mqclient.errors import MQClientError, NoAnswerError
from remoting.bodies.bodies import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData, loads_fastjson
from remoting.client import Connect, RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import ConfigError, parse_properties
from remoting.errors import RemotingBodyError
from remoting.headers.admin_headers import ScrubRequestHeader
from remoting.headers.headers import CommandHeader, GetRouteInfoRequestHeader, to_ext_fields

T = TypeVar("T")

# Requests that change nothing, whatever becomes of them, as tools send them: their pulls commit no offset. What is not
# here may have changed something when no answer comes.
READS = frozenset(
    {
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_ACL,
        RequestCode.AUTH_LIST_USER,
        RequestCode.EXPLAIN_ACCESS,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.GET_ENTRY_HEAD,
        RequestCode.GET_KV_CONFIG,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.GET_PENDING_TRANSACTIONS,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.GET_TIMER_STATE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.GET_TRANSACTION_STATE,
        RequestCode.LIST_MEMBERS,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUME_QUEUE,
        RequestCode.QUERY_MESSAGE,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.REPAIR_STATUS,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.VIEW_MESSAGE_BY_ID,
    }
)

# Answers after which surely nothing was done: whether asking again may help, and what does.
_REFUSALS: dict[int, tuple[bool, str]] = {
    ResponseCode.SERVICE_NOT_AVAILABLE: (True, "ask the leader (id 0 of clusterList), or again in a moment"),
    ResponseCode.SYSTEM_BUSY: (True, "ask again in a moment"),
    ResponseCode.CONSUMER_NOT_ONLINE: (True, "start a consumer of the group first"),
    ResponseCode.TOPIC_NOT_EXIST: (False, "topicList shows the topics there are"),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (False, "make it with updateSubGroup"),
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: (
        False,
        "this server does not serve that; does -n name a NameServer, and -b a broker?",
    ),
    ResponseCode.INVALID_PARAMETER: (False, ""),
    ResponseCode.ILLEGAL_OPERATION: (False, ""),
    ResponseCode.MESSAGE_ILLEGAL: (False, ""),
    ResponseCode.NO_PERMISSION: (False, ""),
    ResponseCode.QUERY_NOT_FOUND: (False, ""),
}


class AdminError(MQClientError):
    """A request of a tool that failed. `code` is the server's answer, -1 where none came.

    Not `definite`: a change that was asked for may have been made all the same; look before asking again.
    """

    def __init__(self, text: str, *, definite: bool = True, retriable: bool = False, code: int = -1) -> None:
        super().__init__(text)
        self.definite = definite
        self.retriable = retriable
        self.code = code


@dataclass(frozen=True, slots=True)
class AdminAnswer(Answer):
    """As a tool reads it. A change that it answers may have been made: not so if it `only_reads`."""

    only_reads: bool

    def checked(self) -> AdminAnswer:
        """Itself if it is one of success. Raises AdminError."""
        code = self.code
        if code == ResponseCode.SUCCESS:
            return self
        # RocketMQ's brokers add stack traces and links to their remarks.
        reason = (self.remark.strip().splitlines() or [f"code {code}"])[0]
        if code not in _REFUSALS:
            raise AdminError(f"{self.address}: {reason}", definite=self.only_reads, code=code)
        retriable, advice = _REFUSALS[code]
        text = f"{self.address}: {reason}: {advice}" if advice else f"{self.address}: {reason}"
        raise AdminError(text, retriable=retriable, code=code)

    def json_object(self) -> dict[str, Any]:
        """A body whose names nobody here knows."""
        try:
            value = loads_fastjson(bytes(self.body))
        except RemotingBodyError as error:
            raise self.unreadable(str(error)) from error
        if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
            raise self.unreadable("a body that is no JSON object")
        return value

    def properties(self) -> dict[str, str]:
        """Settings by name."""
        try:
            items = parse_properties(bytes(self.body).decode(errors="replace"), "its answer")
        except ConfigError as error:
            raise self.unreadable(str(error)) from error
        return {item.key: item.value for item in items}

    def messages(self, from_offset: int | None = None) -> list[MessageExt]:
        """Records, as they lie there; those of a pull `from_offset` on as consumers see them."""
        try:
            return received_messages(self.body, from_offset)
        except MessageError as error:
            raise self.unreadable(f"messages that cannot be read: {error}") from error

    def unreadable(self, reason: str) -> AdminError:
        text = f"{self.address} answered {self.request.name} with {reason}"
        return AdminError(text, definite=self.only_reads)


class AdminCalls:
    """The one thing that all parts of an Admin share."""

    def __init__(
        self,
        namesrv: str | None,
        *,
        timeout_s: float,
        credentials: Credentials | None,
        connect: Connect | None,
    ) -> None:
        """Raises ValueError for an address that is none, and for half of an access key and secret."""
        self.namesrv_addresses = parse_namesrv(namesrv)
        self._remoting = RemotingClient(
            connect=connect or connect_of_environment(), before_request=signer_of(credentials)
        )
        self._api = ClientApi(self._remoting, timeout_s=timeout_s)

    async def close(self) -> None:
        await self._remoting.close()

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: CommandHeader | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> AdminAnswer:
        """The answer of success. Raises AdminError for every other end."""
        return (await self.ask(address, code, header, body, timeout_s=timeout_s)).checked()

    async def ask(
        self,
        address: str,
        code: RequestCode,
        header: CommandHeader | None = None,
        body: bytes = b"",
        *,
        timeout_s: float | None = None,
    ) -> AdminAnswer:
        """Any answer. Raises AdminError where none came."""
        fields = to_ext_fields(header) if header is not None else {}
        only_reads = _only_reads(code, header)
        try:
            answer = await self._api.ask(address, code, fields, body, timeout_s=timeout_s)
        except NoAnswerError as error:
            definite = error.definite or only_reads
            unknown = "" if definite else ": the outcome is unknown"
            raise AdminError(f"{error}{unknown}", definite=definite, retriable=error.retriable) from error
        return AdminAnswer(address, code, answer.command, only_reads)

    # NameServers

    async def ask_namesrv(self, code: RequestCode, header: CommandHeader | None = None) -> AdminAnswer:
        """The first answer of success, from one NameServer after the other. Raises AdminError: the last one's refusal,
        or that none of them is there.
        """
        refusal: AdminError | None = None
        silent: list[str] = []
        for address in self.namesrv_addresses:
            try:
                answer = await self.ask(address, code, header)
            except AdminError as error:
                silent.append(str(error))
                continue
            try:
                return answer.checked()
            except AdminError as error:
                refusal = error
        if refusal is not None:
            raise refusal
        raise AdminError(
            f"no NameServer answered ({'; '.join(silent)}): start it, or name another with -n", retriable=True
        )

    async def tell_namesrvs(
        self,
        code: RequestCode,
        header: CommandHeader | None = None,
        body: bytes = b"",
        *,
        done: Iterable[str] = (),
    ) -> dict[str, AdminAnswer]:
        """Each NameServer's answer, by address. Raises AdminError as `at_each` does."""
        return await at_each(
            self.namesrv_addresses, lambda address: self.call(address, code, header, body), done=done
        )

    async def route(self, topic: str) -> TopicRouteData:
        """Raises AdminError, TOPIC_NOT_EXIST when no NameServer knows the topic."""
        try:
            answer = await self.ask_namesrv(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)
            )
        except AdminError as error:
            if error.code != ResponseCode.TOPIC_NOT_EXIST:
                raise
            raise AdminError(
                f"no NameServer knows topic {topic}: {_REFUSALS[error.code][1]}", code=error.code
            ) from error
        route = answer.read(TopicRouteData)
        if not route.broker_datas:
            raise answer.unreadable(f"a route of topic {topic} without any broker")
        route.broker_datas.sort(key=lambda broker: broker.broker_name)
        return route

    async def cluster_info(self) -> ClusterInfo:
        return (await self.ask_namesrv(RequestCode.GET_BROKER_CLUSTER_INFO)).read(ClusterInfo)

    # Brokers

    async def groups(self, cluster: str = "") -> list[BrokerData]:
        """The replica groups of one cluster, or of all, by name. Raises AdminError when there is none."""
        info = await self.cluster_info()
        if not info.broker_addr_table:
            raise AdminError("no broker is registered with the NameServer: start one", retriable=True)
        if cluster and cluster not in info.cluster_addr_table:
            known = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise AdminError(f"no cluster {cluster}: the NameServer knows {known}")
        names = info.cluster_addr_table[cluster] if cluster else info.broker_addr_table
        return [info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table]

    async def leaders(self, cluster: str = "") -> list[str]:
        """Who takes changes. Raises AdminError when a group has nobody now: half of them is no whole."""
        return [leader_of(group) for group in await self.groups(cluster)]

    async def members(self, cluster: str = "") -> list[str]:
        """Every broker's address, group by group, the leader first."""
        groups = await self.groups(cluster)
        return [address for group in groups for _, address in sorted(group.broker_addrs.items())]

    async def group_named(self, broker_name: str) -> BrokerData:
        for group in await self.groups():
            if group.broker_name == broker_name:
                return group
        raise AdminError(f"no broker {broker_name} is registered: clusterList shows those that are")


def _only_reads(code: RequestCode, header: CommandHeader | None) -> bool:
    if isinstance(header, ScrubRequestHeader):
        return (
            not header.begin
        )  # one code has a round begin, which mends what it finds, and asks how far it is
    return code in READS


async def at_each(
    places: Iterable[str], change: Callable[[str], Awaitable[T]], *, done: Iterable[str] = ()
) -> dict[str, T]:
    """Changes something at one place after the other; returns what each change did. `done`: what was changed before.

    Where one fails, its AdminError says where the change is made already, and is not definite then.
    """
    before, results = list(done), dict[str, T]()
    for place in places:
        try:
            results[place] = await change(place)
        except AdminError as error:
            if not (before or results):
                raise
            text = f"{error} (done already at {', '.join([*before, *results])})"
            raise AdminError(text, definite=False, retriable=error.retriable, code=error.code) from error
    return results


def leader_of(group: BrokerData) -> str:
    address = group.broker_addrs.get(MASTER_ID)
    if address is None:
        raise AdminError(
            f"broker {group.broker_name} has no leader now: try again in a moment", retriable=True
        )
    return address


def reader_of(group: BrokerData) -> str:
    """The leader, or the first member that there is."""
    if not group.broker_addrs:
        raise AdminError(f"broker {group.broker_name} has no member now", retriable=True)
    return group.broker_addrs[min(group.broker_addrs)]
