"""Whatever goes wrong, a caller catches MQClientError and asks it two questions."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable

import pytest

import mqclient
from mqclient import BadAnswerError, BrokerResponseError, MQClientError, NoAnswerError
from mqclient.client_api import ClientApi
from mqclient.message_queue import MessageQueue
from remoting.channel import Channel
from remoting.client import RemotingClient
from remoting.frame.command import RemotingCommand, response
from remoting.server import RemotingServer

QUEUE = MessageQueue("T", "G", 0)

CALLS: list[Callable[[ClientApi, str], Awaitable[object]]] = [
    lambda api, address: api.topic_route(address, "T"),
    lambda api, address: api.cluster_info(address),
    lambda api, address: api.topic_list(address),
    lambda api, address: api.consumer_ids(address, "g"),
    lambda api, address: api.max_offset(address, QUEUE),
    lambda api, address: api.query_consumer_offset(address, "g", QUEUE),
]


class OneAnswer:
    """Answers every request alike; None: ends the connection."""

    def __init__(self, code: int | None, body: bytes = b"", fields: dict[str, str] | None = None) -> None:
        self.code = code
        self.body = body
        self.fields = fields
        self.server = RemotingServer(self, "127.0.0.1", 0)

    def channel_opened(self, channel: Channel) -> None: ...

    def channel_resumed(self, channel: Channel) -> None: ...

    def channel_closed(self, channel: Channel) -> None: ...

    def commands_received(self, channel: Channel, commands: list[RemotingCommand]) -> None:
        for command in commands:
            if self.code is None:
                channel.abort()
            else:
                channel.write(response(command, self.code, "why", self.fields, self.body).encode())


def error_of(call: Callable[[ClientApi, str], Awaitable[object]], peer: OneAnswer) -> MQClientError:
    async def story() -> MQClientError:
        await peer.server.start()
        remoting = RemotingClient()
        try:
            with pytest.raises(MQClientError) as caught:
                await call(ClientApi(remoting), f"127.0.0.1:{peer.server.port}")
            return caught.value
        finally:
            await remoting.close()
            await peer.server.close(flush_seconds=0)

    return asyncio.run(story())


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(("body", "fields"), [(b"", {}), (b"{", {"offset": "x"}), (b"[1]", {"offset": ""})])
def test_an_answer_that_cannot_be_read_is_an_error_of_its_own(
    call: Callable[[ClientApi, str], Awaitable[object]], body: bytes, fields: dict[str, str]
) -> None:
    error = error_of(call, OneAnswer(0, body, fields))
    assert isinstance(error, BadAnswerError)
    assert (error.definite, error.retriable) == (False, False)


def test_a_connection_that_ends_leaves_the_outcome_unknown() -> None:
    error = error_of(CALLS[4], OneAnswer(None))
    assert isinstance(error, NoAnswerError)
    assert (error.definite, error.retriable) == (False, True)


def test_a_broker_that_is_not_there_has_surely_done_nothing() -> None:
    async def story() -> None:
        remoting = RemotingClient()
        with pytest.raises(NoAnswerError) as caught:
            await ClientApi(remoting).max_offset("127.0.0.1:1", QUEUE)
        assert (caught.value.definite, caught.value.retriable) == (True, True)
        await remoting.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("code", "definite", "retriable"),
    [(1, False, True), (2, True, True), (14, True, True), (16, True, False)],
)
def test_an_answer_says_by_its_code_whether_it_is_done_and_may_be_asked_again(
    code: int, definite: bool, retriable: bool
) -> None:
    error = error_of(CALLS[4], OneAnswer(code))
    assert isinstance(error, BrokerResponseError)
    assert (error.code, error.definite, error.retriable) == (code, definite, retriable)


def test_every_public_error_is_of_the_one_hierarchy_and_says_what_it_means() -> None:
    errors = [
        thing
        for name in mqclient.__all__
        if inspect.isclass(thing := getattr(mqclient, name)) and issubclass(thing, Exception)
    ]
    assert len(errors) > 8
    for error in errors:
        assert issubclass(error, MQClientError)
        assert error.__doc__
