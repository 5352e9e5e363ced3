"""Each method of the proxy, by whoever may call it: the proxy asks what its table says, and a broker's own processor
decides. Also what somebody on the way may make of a call's signature.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fake_call import FakeCall
from one_broker import OneBroker
from secured_broker import NEW_USER, ROOT, allow, ask_as, change, secured_broker
from test_proxy_access import DATE, METHODS, Group, signed

from auth.policy import PolicyType
from auth.user import UserStatus
from mqclient.answer import Answer
from proxy.services.permissions import Permissions
from proxy.status import StatusError
from remoting.codes import RequestCode
from store.state.tables.access_table import DeletePolicyEntries, DeleteUser, PutUser

WRONG = "UNAUTHORIZED: check signature failed."


class DecidingGroup(Group):
    """Of one member, which a proxy that signs as a super user asks."""

    def __init__(self, broker: OneBroker) -> None:
        super().__init__()
        self._broker = broker

    async def call(
        self, address: str, code: int, fields: dict[str, str], body: bytes, *, timeout_s: float
    ) -> Answer:
        return Answer(address, RequestCode(code), ask_as(self._broker, ROOT, code, fields, body))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with secured_broker(tmp_path) as made:
        change(made, NEW_USER)
        yield made


def outcome(broker: OneBroker, name: str, metadata: Mapping[str, str], peer: str = "10.1.2.3:5") -> str:
    """Of a call to a proxy that remembers nothing."""

    async def call() -> str:
        group = DecidingGroup(broker)
        check = getattr(Permissions(group.access), re.sub("(?<!^)(?=[A-Z])", "_", name).lower())
        try:
            await check(METHODS[name][0], FakeCall(metadata=metadata, peer=peer))
        except StatusError as error:
            return str(error)
        return "OK"

    return asyncio.run(call())


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_open_to_those_who_have_its_rights_and_to_nobody_else(
    broker: OneBroker, name: str
) -> None:
    """Nobody, an unknown user, a wrong secret, a user without rights, with all but one, with each; a super user."""
    needs = METHODS[name][1]

    def refusal(resource: str) -> str:
        return f"FORBIDDEN: User:u has no permission to access {resource} from 10.1.2.3, no matched policies."

    assert outcome(broker, name, {}) == "UNAUTHORIZED: username cannot be null."
    assert outcome(broker, name, signed(username="nobody")) == "UNAUTHORIZED: User:nobody is not found."
    assert outcome(broker, name, signed("wrong")) == WRONG
    assert outcome(broker, name, signed("wrong", "root")) == WRONG
    assert outcome(broker, name, signed()) == refusal(needs[0][0])
    for missing, actions in needs:
        others = sorted({"Pub", "Sub", "Create", "Update", "Delete", "Get", "List"} - set(actions))
        for left in actions:
            change(broker, DeletePolicyEntries("u", PolicyType.CUSTOM, None))
            allow(
                broker, *(f"{left} {resource}" for resource, _ in needs if resource != missing), "All Topic:X"
            )
            allow(broker, f"{','.join(others)} {missing}")
            assert outcome(broker, name, signed()) == refusal(missing)
            allow(broker, f"{left} {missing} 10.9.0.0/16")
            assert outcome(broker, name, signed()) == refusal(missing)
            allow(broker, *(f"{left} {resource} 10.1.0.0/16" for resource, _ in needs))
            assert outcome(broker, name, signed()) == "OK"
    assert outcome(broker, name, signed("root-secret", "root")) == "OK"
    change(broker, PutUser("u", None, None, UserStatus.DISABLE))
    assert outcome(broker, name, signed()) == "UNAUTHORIZED: User:u is disabled."


@pytest.mark.parametrize("name", METHODS)
def test_a_signature_that_was_changed_on_its_way_is_refused(broker: OneBroker, name: str) -> None:
    allow(broker, "All *")
    sound = signed()
    (words,) = [value for key, value in sound.items() if key == "authorization"]
    credential, headers, proof = words.removeprefix("MQv2-HMAC-SHA1 ").split(", ")
    for date in (DATE[:-1], DATE.replace("2026", "2027"), DATE + "0"):
        assert outcome(broker, name, {**sound, "x-mq-date-time": date}) == WRONG
    for authorization in (
        words[:-2],
        words[:-1],
        words.replace(proof, "Signature="),
        words.replace("Credential=u/", "Credential=root/"),
        f"MQv2-HMAC-SHA1 {credential}, {headers}",
    ):
        assert outcome(broker, name, {**sound, "authorization": authorization}) == WRONG
    without_user = f"MQv2-HMAC-SHA1 {headers}, {proof}"
    refused = outcome(broker, name, {**sound, "authorization": without_user})
    assert refused == "UNAUTHORIZED: username cannot be null."
    reordered = f"MQv2-HMAC-SHA1 {proof}, {headers}, {credential}"
    assert outcome(broker, name, dict(reversed({**sound, "authorization": reordered}.items()))) == "OK"


@pytest.mark.parametrize("name", METHODS)
def test_a_signature_that_is_repeated_counts_by_the_users_of_then(broker: OneBroker, name: str) -> None:
    """Of another client's address, and of a time long ago as well (docs/security.md)."""
    seen = signed()
    allow(broker, "All *")
    for peer in ("10.1.2.3:5", "10.1.2.3:6", "192.168.1.1:5"):
        assert outcome(broker, name, seen, peer) == "OK"
    change(broker, PutUser("u", "another-secret", None, None))
    assert outcome(broker, name, seen) == WRONG
    change(broker, DeleteUser("u"))
    assert outcome(broker, name, seen) == "UNAUTHORIZED: User:u is not found."
