"""A broker with access control, its users, and requests that they sign."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from one_broker import OneBroker, RecordingChannel

from auth.credentials import Credentials
from auth.policy import PolicyType, make_entry
from auth.user import UserStatus, UserType
from remoting.frame.command import RemotingCommand
from store.state.table import StateChange
from store.state.tables.access_table import PutPolicyEntries, PutUser

CONF = """
authenticationEnabled=true
authorizationEnabled=true
initAuthenticationUser={"username":"root","password":"root-secret"}
"""
ROOT = Credentials("root", "root-secret")
USER = Credentials("u", "u-secret")
NEW_USER = PutUser("u", "u-secret", UserType.NORMAL, UserStatus.ENABLE)


@contextmanager
def secured_broker(directory: Path, conf: str = CONF, *, elect: bool = True) -> Iterator[OneBroker]:
    broker = OneBroker(directory, conf, elect=elect)
    try:
        yield broker
    finally:
        broker.close()


def change(broker: OneBroker, *changes: StateChange) -> None:
    """Makes changes of the tables, and waits until they are applied."""
    left = list(changes)
    for item in changes:
        broker.store.propose(item, lambda status, item=item: left.remove(item), broker.now_ms)  # type: ignore[misc]
    broker.run_until(lambda: not left)


def allow(broker: OneBroker, *texts: str, username: str = "u") -> None:
    """`Pub,Sub Topic:orders` or `Pub Topic:orders 10.0.0.0/8`, each."""
    entries = []
    for text in texts:
        actions, resource, *sources = text.split(" ")
        entries.append(make_entry(resource, actions.split(","), sources, "Allow"))
    change(broker, PutPolicyEntries(username, PolicyType.CUSTOM, tuple(entries)))


def signed(command: RemotingCommand, credentials: Credentials) -> RemotingCommand:
    command.ext_fields = credentials.signed(command.ext_fields, command.body, command.version)
    return command


def ask_as(
    broker: OneBroker,
    credentials: Credentials | None,
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    source_ip: str = "10.1.2.3",
) -> RemotingCommand:
    """A request and its answer. Without credentials nobody signs it."""
    command = broker.new_request(code, fields, body)
    if credentials is not None:
        signed(command, credentials)
    return answer_to(broker, command, source_ip)


def answer_to(broker: OneBroker, command: RemotingCommand, source_ip: str = "10.1.2.3") -> RemotingCommand:
    channel = RecordingChannel(7, f"{source_ip}:50007")
    broker.receive([command], channel)
    broker.settle()
    broker.run_until(lambda: channel.response_to(command.opaque) is not None)
    answer = channel.response_to(command.opaque)
    assert answer is not None
    return answer
