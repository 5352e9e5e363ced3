"""Requests of a follower to its leader, at the address by which clients know the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from broker.leadership.follower_changes import OnLeaderAnswer
from remoting.client import RemotingClient
from remoting.codes import ResponseCode
from remoting.errors import RemotingConnectError, RemotingError
from remoting.frame.command import RemotingCommand, response
from remoting.headers import headers

NAME_SERVER_TIMEOUT_S = 1.0
LEADER_TIMEOUT_S = 3.0  # tools wait for 5 s


class LeaderRequests:
    """Invariant: each request is answered once."""

    def __init__(
        self,
        client: RemotingClient,
        make_registration: Callable[[], RemotingCommand],
        own_addr: str,
        name_servers: Sequence[str],
    ) -> None:
        self._client = client
        self._make_registration = make_registration
        self._own_addr = own_addr
        self._name_servers = name_servers
        self._tasks: set[asyncio.Task[None]] = set()

    def ask(self, command: RemotingCommand, on_answer: OnLeaderAnswer) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(command, on_answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _ask(self, command: RemotingCommand, on_answer: OnLeaderAnswer) -> None:
        leader_addr = await self._leader_addr()
        if leader_addr is None:
            on_answer(None)
            return
        try:
            on_answer(await self._client.invoke(leader_addr, command, LEADER_TIMEOUT_S))
        except RemotingConnectError:
            on_answer(None)
        except RemotingError as error:
            remark = (
                f"outcome unknown: passed on to the leader {leader_addr}, which has not answered: {error}"
            )
            on_answer(response(command, ResponseCode.SYSTEM_ERROR, remark))

    async def _leader_addr(self) -> str | None:
        """Asks the NameServers by a registration, whose answer tells a slave where its master is."""
        for address in self._name_servers:
            try:
                answer = await self._client.invoke(address, self._make_registration(), NAME_SERVER_TIMEOUT_S)
                told = headers.decode(headers.RegisterBrokerResponseHeader, answer.ext_fields).master_addr
            except RemotingError:
                continue
            if told and told != self._own_addr:
                return told
        return None
