"""Each request code that a NameServer serves, by whoever may ask it; and what somebody on the way may make of a signed
request.
"""

from __future__ import annotations

import pytest
from test_namesrv_access import APP, INNER, USERS, Channel, ask, asked, config, processor_of

from auth.credentials import Credentials
from namesrv.namesrv_access import ADMINISTRATION
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

OPEN = config()
CLOSED = config(authenticationEnabled="true", pyDLedgerUsers=USERS)
CODES = [
    code
    for code in RequestCode
    if ask(OPEN, code, source="127.0.0.1:5").code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED
]
# As docs/security.md has it: what changes a NameServer, and what brokers tell it.
OF_SUPER_USERS = {
    RequestCode.REGISTER_BROKER,
    RequestCode.UNREGISTER_BROKER,
    RequestCode.BROKER_HEARTBEAT,
    RequestCode.QUERY_DATA_VERSION,
    RequestCode.PUT_KV_CONFIG,
    RequestCode.DELETE_KV_CONFIG,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    RequestCode.ADD_WRITE_PERM_OF_BROKER,
    RequestCode.DELETE_TOPIC_IN_NAMESRV,
    RequestCode.UPDATE_NAMESRV_CONFIG,
}
WRONG = "check signature failed."


def test_each_code_that_only_reads_is_known_and_no_other_is_open_to_each_user():
    read = {code.name for code in CODES if code not in OF_SUPER_USERS}
    assert read == {
        "GET_KV_CONFIG",
        "GET_KVLIST_BY_NAMESPACE",
        "GET_ROUTEINFO_BY_TOPIC",
        "GET_BROKER_CLUSTER_INFO",
        "GET_ALL_TOPIC_LIST_FROM_NAMESERVER",
        "GET_TOPICS_BY_CLUSTER",
        "GET_SYSTEM_TOPIC_LIST_FROM_NS",
        "GET_UNIT_TOPIC_LIST",
        "GET_HAS_UNIT_SUB_TOPIC_LIST",
        "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST",
        "GET_BROKER_MEMBER_GROUP",
        "GET_NAMESRV_CONFIG",
    }
    assert set(CODES) > OF_SUPER_USERS
    assert OF_SUPER_USERS > ADMINISTRATION


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("source", ["127.0.0.1:5", "10.1.2.3:5"])
def test_a_code_is_answered_to_those_who_may_and_to_nobody_else(code: RequestCode, source: str) -> None:
    """Nobody, an unknown user, a wrong secret, a normal user, a super user; no address stands for a user."""

    def refusal(credentials: Credentials | None) -> str | None:
        answer = ask(CLOSED, code, credentials, source)
        return answer.remark if answer.code == ResponseCode.NO_PERMISSION else None

    assert refusal(None) == "username cannot be null."
    assert refusal(Credentials("nobody", "secret-2")) == "User:nobody is not found."
    for username in ("app", "inner"):
        assert refusal(Credentials(username, "wrong")) == WRONG
    no_right = "User:app is no super user, as this request needs."
    assert refusal(APP) == (no_right if code in OF_SUPER_USERS else None)
    assert refusal(INNER) is None
    is_closed = code in ADMINISTRATION and source.startswith("10.")
    assert (ask(OPEN, code, source=source).code == ResponseCode.NO_PERMISSION) == is_closed


@pytest.mark.parametrize("code", CODES)
def test_a_signed_request_that_was_changed_on_its_way_is_refused(code: RequestCode) -> None:
    """Each field cut, left out, or exchanged with another; one more; another body. Their order is no part of it."""
    processor = processor_of(CLOSED)

    def answer(
        fields: dict[str, str | None], body: bytes = b"", *, is_reversed: bool = False
    ) -> RemotingCommand:
        command = asked(code, INNER)
        merged = command.ext_fields | fields
        items = [(name, value) for name, value in merged.items() if value is not None]
        command.ext_fields = dict(items[::-1] if is_reversed else items)
        command.body = body
        channel = Channel("10.1.2.3:5")
        processor.process(channel, [command], 0)
        (answered,) = channel.answers
        return answered

    fields = asked(code, INNER).ext_fields
    for name, value in fields.items():
        if name != "AccessKey":
            for spoiled in (value[:-1], None):
                assert answer({name: spoiled}).remark == WRONG, name
    assert answer({"AccessKey": "inne"}).remark == "User:inne is not found."
    assert answer({"AccessKey": "app"}).remark == WRONG
    assert answer({"key": "v", "value": "k"}).remark == WRONG
    assert answer({"another": "1"}).remark == WRONG
    assert answer({}, b"x").remark == WRONG
    for is_reversed in (False, True):
        assert answer({}, is_reversed=is_reversed).code != ResponseCode.NO_PERMISSION
