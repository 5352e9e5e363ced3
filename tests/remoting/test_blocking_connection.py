"""A connection that blocks: what its caller is told of a peer that is not there or does not answer."""

import contextlib
import socket
from collections.abc import Iterator
from itertools import count

import pytest

from remoting import blocking_connection
from remoting.blocking_connection import BlockingConnection
from remoting.codes import RequestCode
from remoting.errors import RemotingConnectError, RemotingTimeoutError
from remoting.frame.command import RemotingCommand, request, response
from remoting.frame.connection import RemotingConnection


@pytest.fixture
def peer() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def test_answer_is_awaited_until_its_time_whatever_else_the_peer_sends(
    peer: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may ask its clients things, one after the other. Here each look at the clock takes a second."""
    seconds = count()
    monkeypatch.setattr(blocking_connection, "monotonic", lambda: float(next(seconds)))
    with contextlib.closing(BlockingConnection(f"127.0.0.1:{peer.getsockname()[1]}", 10)) as connection:
        accepted, _ = peer.accept()
        with accepted:
            opaque = connection.send(RequestCode.GET_BROKER_CLUSTER_INFO, {})
            asked = request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, opaque=opaque)
            monkeypatch.setattr(blocking_connection, "_READ_SIZE", len(asked.encode()))
            accepted.sendall(asked.encode() * 20 + response(asked).encode())
            with pytest.raises(RemotingTimeoutError, match="no answer in time"):
                connection.receive(10)


@pytest.mark.parametrize("address", ["nonsense", "h:0", "", "a b:1", "http://h:1"])
def test_address_that_nobody_can_dial_is_a_peer_that_is_not_there(address: str) -> None:
    """A NameServer may tell one."""
    with pytest.raises(RemotingConnectError, match=r"is no address|has no port|has a port|holds|begins with"):
        BlockingConnection(address, 1)


def test_each_request_is_changed_before_it_leaves(peer: socket.socket) -> None:
    """As a signature does, which is of the fields and the body."""

    def add_size(command: RemotingCommand) -> None:
        command.ext_fields["size"] = str(len(command.body))

    connection = BlockingConnection(f"127.0.0.1:{peer.getsockname()[1]}", 10, before_request=add_size)
    with contextlib.closing(connection):
        accepted, _ = peer.accept()
        with accepted:
            connection.send_many(RequestCode.SEND_MESSAGE, [({"a": "1"}, b"one"), ({"a": "2"}, b"")])
            incoming = RemotingConnection()
            commands: list[RemotingCommand] = []
            while len(commands) < 2:
                commands += incoming.receive_data(accepted.recv(1 << 16))
    assert [command.ext_fields for command in commands] == [{"a": "1", "size": "3"}, {"a": "2", "size": "0"}]
