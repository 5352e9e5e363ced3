"""A change that a follower passes on to its leader: whose it is, and where it came from."""

from __future__ import annotations

from pathlib import Path

import pytest
from one_broker import OneBroker
from secured_broker import CONF, NEW_USER, USER, allow, answer_to, change, secured_broker, signed

from broker.access.passed_on import PASSED_ON, PassedOn
from dledger.cluster_secrets import fixed_secret
from remoting.codes import RequestCode, ResponseCode
from remoting.frame.command import RemotingCommand

DELETE = RequestCode.DELETE_TOPIC_IN_BROKER
FOLLOWER = "10.9.9.9"
SECRET = "pyDLedgerClusterSecret=for members alone\n"


def passed_on(broker: OneBroker, source_ip: str, secret: str = "for members alone") -> RemotingCommand:
    """What the leader gets of a request that USER has signed."""
    command = signed(broker.new_request(DELETE, {"topic": "T"}), USER)
    command.ext_fields = PassedOn(fixed_secret(secret.encode())).fields_of(command, source_ip)
    return command


def test_the_leader_sees_who_has_signed_and_from_where_it_came(tmp_path: Path) -> None:
    with secured_broker(tmp_path, CONF + SECRET) as broker:
        change(broker, NEW_USER)
        allow(broker, "Delete Topic:T 10.1.2.3")
        assert answer_to(broker, passed_on(broker, "10.1.2.3"), FOLLOWER).code != ResponseCode.NO_PERMISSION
        refused = answer_to(broker, passed_on(broker, "10.1.2.4"), FOLLOWER)
        assert (
            refused.remark == "User:u has no permission to access Topic:T from 10.1.2.4, no matched policies."
        )


@pytest.mark.parametrize(
    "spoil",
    [
        {PASSED_ON: "10.1.2.3"},
        {PASSED_ON: "10.1.2.3", "passedOnProof": ""},
        {PASSED_ON: "127.0.0.1", "passedOnProof": "00" * 32},
        {PASSED_ON: "true"},
    ],
)
def test_nobody_claims_an_address_without_the_secret_of_the_members(
    tmp_path: Path, spoil: dict[str, str]
) -> None:
    with secured_broker(tmp_path, SECRET) as broker:
        command = broker.new_request(DELETE, {"topic": "T"} | spoil)
        assert f"closed for {FOLLOWER}" in (answer_to(broker, command, FOLLOWER).remark or "")
        by_another = passed_on(broker, "127.0.0.1", "another secret")
        assert f"closed for {FOLLOWER}" in (answer_to(broker, by_another, FOLLOWER).remark or "")
        of_member = passed_on(broker, "127.0.0.1")
        assert answer_to(broker, of_member, FOLLOWER).code != ResponseCode.NO_PERMISSION
        of_member = passed_on(broker, "127.0.0.1")
        of_member.ext_fields["topic"] = "Other"
        assert f"closed for {FOLLOWER}" in (answer_to(broker, of_member, FOLLOWER).remark or "")
        of_another_code = passed_on(broker, "127.0.0.1")
        of_another_code.code = RequestCode.UPDATE_BROKER_CONFIG
        assert f"closed for {FOLLOWER}" in (answer_to(broker, of_another_code, FOLLOWER).remark or "")


def test_while_the_secret_is_replaced_both_count(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("former\nlatter\n")
    with secured_broker(tmp_path, f"pyDLedgerClusterSecretFile={file}\n") as broker:

        def is_believed(secret: str) -> bool:
            answer = answer_to(broker, passed_on(broker, "127.0.0.1", secret), FOLLOWER)
            return answer.code != ResponseCode.NO_PERMISSION

        assert is_believed("former")
        assert is_believed("latter")
        file.write_text("latter\n")
        assert not is_believed("former")
        assert is_believed("latter")


def test_what_a_follower_adds_is_no_part_of_the_signature_and_the_rest_is(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:
        change(broker, NEW_USER)
        allow(broker, "All *")
        assert (
            answer_to(broker, passed_on(broker, "10.1.2.3", ""), FOLLOWER).code != ResponseCode.NO_PERMISSION
        )
        spoilt = passed_on(broker, "10.1.2.3", "")
        spoilt.ext_fields["more"] = "1"
        assert answer_to(broker, spoilt, FOLLOWER).remark == "check signature failed."
