"""NameServers, as a tool looks at and changes them. They share nothing: each is asked or told by itself."""

from __future__ import annotations

from mqclient.admin.admin_calls import AdminCalls, AdminError
from mqclient.admin_results import WritePermChange
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import format_properties
from remoting.headers import admin_headers, headers

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"  # the namespace that says which topics are read in order


class NamesrvAdmin:
    def __init__(self, calls: AdminCalls) -> None:
        self._calls = calls

    async def config(self) -> dict[str, dict[str, str]]:
        """Settings by NameServer."""
        answers = await self._calls.tell_namesrvs(RequestCode.GET_NAMESRV_CONFIG)
        return {address: answer.properties() for address, answer in answers.items()}

    async def update_config(self, key: str, value: str) -> list[str]:
        """Returns the NameServers that did."""
        body = format_properties([(key, value)]).encode()
        return list(await self._calls.tell_namesrvs(RequestCode.UPDATE_NAMESRV_CONFIG, body=body))

    async def kv(self, namespace: str, key: str) -> str | None:
        """None: there is none."""
        header = headers.GetKVConfigRequestHeader(namespace=namespace, key=key)
        try:
            answer = await self._calls.ask_namesrv(RequestCode.GET_KV_CONFIG, header)
        except AdminError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return None
        return answer.fields.get("value")

    async def put_kv(self, namespace: str, key: str, value: str) -> list[str]:
        """Returns the NameServers that did."""
        header = headers.PutKVConfigRequestHeader(namespace=namespace, key=key, value=value)
        return list(await self._calls.tell_namesrvs(RequestCode.PUT_KV_CONFIG, header))

    async def delete_kv(self, namespace: str, key: str) -> list[str]:
        """Returns the NameServers that did, whether they had it or not."""
        header = headers.DeleteKVConfigRequestHeader(namespace=namespace, key=key)
        return list(await self._calls.tell_namesrvs(RequestCode.DELETE_KV_CONFIG, header))

    async def wipe_write_perm(self, broker_name: str) -> list[WritePermChange]:
        """Nobody sends to the broker's topics any more, until it is taken back or the broker's topics change."""
        await self._calls.group_named(broker_name)
        answers = await self._calls.tell_namesrvs(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER,
            admin_headers.WipeWritePermOfBrokerRequestHeader(broker_name=broker_name),
        )
        return [
            WritePermChange(address, broker_name, answer.number("wipeTopicCount"))
            for address, answer in answers.items()
        ]

    async def add_write_perm(self, broker_name: str) -> list[WritePermChange]:
        await self._calls.group_named(broker_name)
        answers = await self._calls.tell_namesrvs(
            RequestCode.ADD_WRITE_PERM_OF_BROKER,
            admin_headers.AddWritePermOfBrokerRequestHeader(broker_name=broker_name),
        )
        return [
            WritePermChange(address, broker_name, answer.number("addTopicCount"))
            for address, answer in answers.items()
        ]
