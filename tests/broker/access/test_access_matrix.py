"""Each request code of a broker, sent by a user with exactly the rights that its row needs, and by one who lacks one of
them. Also signed requests that were changed on their way. Users without any right, and senders without a valid
signature, are in test_access_check.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hostile_requests import Sound, sound_requests
from one_broker import OneBroker, send_fields
from secured_broker import NEW_USER, ROOT, USER, allow, answer_to, ask_as, change, secured_broker, signed

from auth.policy import Action, PolicyType, Resource, ResourceType
from auth.user import UserStatus
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand
from remoting.headers import headers
from store.state.tables.access_table import DeletePolicyEntries, DeleteUser, PutUser

CODES = sorted(sound_requests())
# It is about a message that is no half, which belongs to no topic.
END_TRANSACTION = RequestCode.END_TRANSACTION
WRONG = "check signature failed."


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    with secured_broker(tmp_path) as made:
        change(made, NEW_USER)
        yield made


def sound(broker: OneBroker, code: int) -> Sound:
    sent = ask_as(broker, ROOT, RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"m")
    assert sent.code == ResponseCode.SUCCESS
    return sound_requests(sent.ext_fields["msgId"])[code]


def needed(broker: OneBroker, code: int, request: Sound) -> dict[Resource, list[frozenset[Action]]]:
    """By what the request is about: the sets of actions of each of which one is to be allowed."""
    row = (broker.controller.pipeline.types | broker.controller.pipeline.batch_types)[code]
    header = headers.decode(row.header, request.fields)
    body_type = getattr(row, "body", None)
    body = body_type.decode(request.body) if body_type else None
    found: dict[Resource, list[frozenset[Action]]] = {}
    for need in row.needs:
        names: Iterable[str] = ()
        if need.resource is ResourceType.CLUSTER:
            names = ["GoldenCluster"]
        elif need.names is not None:
            names = need.names(header, body)
        elif need.is_in_handler and code != END_TRANSACTION:
            names = ["T"]
        for name in names:
            assert need.resource is not None, "it has names"
            found.setdefault(Resource(need.resource, name), []).append(need.actions)
    return found


def rights(needs: dict[Resource, list[frozenset[Action]]], number: int) -> dict[Resource, set[Action]]:
    """Of those that are enough, one of each set: the `number`th."""
    return {
        resource: {sorted(actions)[number % len(actions)] for actions in sets}
        for resource, sets in needs.items()
    }


def is_refused(answer: RemotingCommand, resource: Resource | None = None) -> bool:
    """By policies, and about this resource."""
    remark = answer.remark or ""
    words = f"User:u has no permission to access {resource or ''}"
    return answer.code == ResponseCode.NO_PERMISSION and remark.startswith(words)


@pytest.mark.parametrize("code", CODES)
def test_exactly_the_rights_of_its_row_are_enough_for_a_code_and_none_of_them_is_spare(
    broker: OneBroker, code: int
) -> None:
    request = sound(broker, code)
    needs = needed(broker, code, request)
    variants = max((len(actions) for sets in needs.values() for actions in sets), default=1)

    def grant(granted: dict[Resource, set[Action]]) -> RemotingCommand:
        change(broker, DeletePolicyEntries("u", PolicyType.CUSTOM, None))
        texts = [
            f"{','.join(sorted(actions))} {resource}" for resource, actions in granted.items() if actions
        ]
        if texts:
            allow(broker, *texts)
        return ask_as(broker, USER, code, request.fields, request.body)

    for number in range(variants):
        granted = rights(needs, number)
        for resource, actions in granted.items():
            for action in actions:
                assert is_refused(grant(granted | {resource: actions - {action}}), resource), (
                    resource,
                    action,
                )
            # All that would not be enough on this resource, and all that there is on others.
            others = set(Action) - {Action.ALL} - frozenset().union(*needs[resource])
            more = {Resource(ResourceType.TOPIC, "Other"): {Action.ALL}, resource: others}
            assert is_refused(grant(granted | more), resource), resource
    for number in range(variants):
        answer = grant(rights(needs, number))
        assert not is_refused(answer), answer.remark


@pytest.mark.parametrize("code", CODES)
def test_a_signed_request_that_was_changed_on_its_way_is_refused(broker: OneBroker, code: int) -> None:
    """Each field cut, left out, or exchanged with another; one more; another body."""
    allow(broker, "All *")
    request = sound(broker, code)

    def new() -> RemotingCommand:
        return signed(broker.new_request(code, request.fields, request.body), USER)

    def changed(fields: dict[str, str | None], body: bytes = request.body) -> RemotingCommand:
        command = new()
        merged = command.ext_fields | fields
        command.ext_fields = {name: value for name, value in merged.items() if value is not None}
        command.body = body
        return answer_to(broker, command)

    fields = {name: value for name, value in new().ext_fields.items() if value}
    for name, value in fields.items():
        for spoiled in (value[:-1], None):
            remark = changed({name: spoiled}).remark
            if name == "AccessKey":
                assert remark == (
                    "username cannot be null." if spoiled in (None, "") else f"User:{spoiled} is not found."
                )
            else:
                assert remark == WRONG, name
    for (one, value), (other, other_value) in zip(fields.items(), [*fields.items()][1:], strict=False):
        if "AccessKey" not in (one, other) and value != other_value:
            assert changed({one: other_value, other: value}).remark == WRONG, (one, other)
    assert changed({"another": "1"}).remark == WRONG
    assert changed({}, request.body + b"x").remark == WRONG
    if request.body:
        assert changed({}, request.body[:-1]).remark == WRONG


@pytest.mark.parametrize("code", CODES)
def test_a_request_that_is_repeated_counts_by_the_users_and_policies_of_then(
    broker: OneBroker, code: int
) -> None:
    """A signature has no time (docs/security.md), and no order of fields either; it outlives neither a user's secret
    nor a user.
    """
    request = sound(broker, code)
    command = signed(broker.new_request(code, request.fields, request.body), USER)

    def again() -> RemotingCommand:
        repeated = broker.new_request(code, dict(reversed(command.ext_fields.items())), command.body)
        return answer_to(broker, repeated)

    if needed(broker, code, request):
        assert is_refused(again())
    allow(broker, "All *")
    for _ in range(2):
        assert not is_refused(answer := again()), answer.remark
        assert answer.remark != WRONG
    change(broker, PutUser("u", "another-secret", None, None))
    assert again().remark == WRONG
    change(broker, PutUser("u", "u-secret", None, UserStatus.DISABLE))
    assert again().remark == "User:u is disabled."
    change(broker, DeleteUser("u"))
    assert again().remark == "User:u is not found."
