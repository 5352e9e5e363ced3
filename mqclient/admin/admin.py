"""What operators do with a cluster, as calls with values (Java: DefaultMQAdminExt)."""

from __future__ import annotations

from auth.credentials import Credentials
from mqclient.admin.access_admin import AccessAdmin
from mqclient.admin.admin_calls import AdminCalls
from mqclient.admin.broker_admin import BrokerAdmin
from mqclient.admin.group_admin import GroupAdmin
from mqclient.admin.message_admin import MessageAdmin
from mqclient.admin.namesrv_admin import NamesrvAdmin
from mqclient.admin.topic_admin import TopicAdmin
from remoting.client import Connect


class Admin:
    """Looks at topics, groups, brokers, messages and NameServers, and changes them.

    Use it as `async with Admin("127.0.0.1:9876") as admin`, from one event loop; `await admin.topics.status("T")`. A
    call that fails raises AdminError, whose `definite` says whether surely nothing was changed.
    """

    def __init__(
        self,
        namesrv: str | None = None,
        *,
        timeout_s: float = 5.0,
        credentials: Credentials | None = None,
        connect: Connect | None = None,
    ) -> None:
        """`namesrv`: `host:port`, several with `;`; without one, what the environment has in NAMESRV_ADDR.
        `credentials`: with which requests are signed; without them, those of the environment. Raises ValueError for an
        address that is none.
        """
        self._calls = AdminCalls(namesrv, timeout_s=timeout_s, credentials=credentials, connect=connect)
        self.namesrv_addr = ";".join(self._calls.namesrv_addresses)
        self.topics = TopicAdmin(self._calls)
        self.groups = GroupAdmin(self._calls, self.topics)
        self.brokers = BrokerAdmin(self._calls)
        self.messages = MessageAdmin(self._calls, self.topics, self.groups)
        self.namesrv = NamesrvAdmin(self._calls)
        self.access = AccessAdmin(self._calls)

    async def close(self) -> None:
        await self._calls.close()

    async def __aenter__(self) -> Admin:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
