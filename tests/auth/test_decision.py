"""Which entry of a user's policies decides."""

from __future__ import annotations

import pytest

from auth.decision import UserRules, Verdict
from auth.policy import (
    Action,
    Policies,
    PolicyError,
    PolicyType,
    Resource,
    ResourceType,
    make_entry,
    parse_pattern,
)
from auth.user import User

ORDERS = Resource(ResourceType.TOPIC, "orders-eu")


def rules(*custom: str, default: tuple[str, ...] = ()) -> UserRules:
    """`Allow Pub,Sub Topic:orders-* 10.0.0.0/8`, each."""

    def read(texts: tuple[str, ...]) -> dict[str, object]:
        entries = {}
        for text in texts:
            decision, actions, resource, *sources = text.split(" ")
            entry = make_entry(resource, actions.split(","), sources, decision)
            entries[entry.resource] = entry
        return entries

    return UserRules(Policies(read(custom), read(default)))  # type: ignore[arg-type]


def ask(found: UserRules, action: Action = Action.PUB, source_ip: str = "10.1.2.3") -> Verdict:
    return found.decide("u", ORDERS, {action}, source_ip)


@pytest.mark.parametrize(
    ("texts", "rule"),
    [
        (["Allow Pub Topic:orders-eu", "Deny All Topic:orders-*"], "Allow Pub on Topic:orders-eu"),
        (["Deny Pub Topic:orders-e*", "Allow Pub Topic:orders-*"], "Deny Pub on Topic:orders-e*"),
        (["Deny Pub Topic:*", "Allow Pub Topic:o*"], "Allow Pub on Topic:o*"),
        (["Deny Pub Topic:*", "Allow All *"], "Deny Pub on Topic:*"),
        (["Deny Sub Topic:orders-eu", "Allow All Topic:*"], "Allow All on Topic:*"),
        (
            ["Deny Pub Topic:orders-eu 192.168.0.0/16", "Allow Pub Topic:orders-* 10.1.2.3"],
            "Allow Pub on Topic:orders-* from 10.1.2.3",
        ),
    ],
)
def test_the_most_exact_entry_that_matches_decides(texts: list[str], rule: str) -> None:
    verdict = ask(rules(*texts))
    assert (verdict.rule, verdict.is_allowed) == (f"Custom policy: {rule}", rule.startswith("Allow"))
    assert ask(rules(*reversed(texts))) == verdict


def test_default_policies_are_asked_where_no_custom_one_matches() -> None:
    found = rules("Allow Sub Topic:orders-eu", default=("Deny Pub Topic:orders-eu", "Allow All *"))
    assert ask(found).rule == "Default policy: Deny Pub on Topic:orders-eu"
    assert ask(found, Action.SUB).rule == "Custom policy: Allow Sub on Topic:orders-eu"
    assert ask(found, Action.GET).rule == "Default policy: Allow All on *"


def test_a_refusal_says_why_in_rocketmqs_words() -> None:
    words = "User:u has no permission to access Topic:orders-eu from 10.1.2.3, "
    assert ask(rules("Deny Pub Topic:*")).reason == f"{words}the decision is deny."
    assert ask(rules()).reason == f"{words}no matched policies."
    assert ask(rules("Allow Pub Topic:*")).reason == ""


def test_an_entry_with_sources_matches_no_other_and_no_unknown_address() -> None:
    found = rules("Allow Pub Topic:* 10.0.0.0/8 ::1 fd00::/8")
    verdicts = {
        ip: ask(found, source_ip=ip).is_allowed for ip in ("10.9.9.9", "::1", "fd12::3", "11.0.0.1", "")
    }
    assert verdicts == {"10.9.9.9": True, "::1": True, "fd12::3": True, "11.0.0.1": False, "": False}


def test_an_ipv4_address_that_is_written_as_one_of_ipv6_is_the_same_address() -> None:
    """As load balancers write it that listen for both."""
    found = rules("Deny Pub Topic:orders-eu 10.0.0.0/8", "Allow Pub *")
    assert not ask(found, source_ip="::ffff:10.1.2.3").is_allowed
    assert ask(found, source_ip="::ffff:11.1.2.3").is_allowed


def test_one_of_several_actions_is_enough() -> None:
    found = rules("Allow Get Topic:*")
    assert found.decide("u", ORDERS, {Action.SUB, Action.GET}, "::1").is_allowed
    assert not found.decide("u", ORDERS, {Action.SUB}, "::1").is_allowed


@pytest.mark.parametrize(
    ("resource", "actions", "sources", "decision", "reason"),
    [
        ("", ["Pub"], [], "Allow", "The resource is null."),
        (None, ["Pub"], [], "Allow", "The resource is null."),
        ("Queue:a", ["Pub"], [], "Allow", "'Queue:a' is none"),
        ("Any:a", ["Pub"], [], "Allow", "'Any:a' is none"),
        ("Topic:", ["Pub"], [], "Allow", "'Topic:' is none"),
        ("Topic:a*b", ["Pub"], [], "Allow", "is none"),
        ("Topic:\ud800", ["Pub"], [], "Allow", "is none"),
        ("Topic:a", ["Pub"], ["fe80::1%\ud800"], "Allow", "The source ip is invalid."),
        ("Topic:a", [], [], "Allow", "The actions is empty."),
        ("Topic:a", ["Any"], [], "Allow", "The actions can not be Any."),
        ("Topic:a", ["Push"], [], "Allow", "'Push' is no action."),
        ("Topic:a", ["Pub"], ["*"], "Allow", "The source ip is invalid."),
        ("Topic:a", ["Pub"], ["10.0.0.0/33"], "Allow", "The source ip is invalid."),
        ("Topic:a", ["Pub"], [" "], "Allow", "The source ip is empty."),
        ("Topic:a", ["Pub"], [], "Perhaps", "The decision is null or illegal."),
        ("Topic:a", ["Pub"], [], None, "The decision is null or illegal."),
    ],
)
def test_an_entry_that_cannot_be_is_refused(
    resource: str | None, actions: list[str], sources: list[str], decision: str | None, reason: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        make_entry(resource, actions, sources, decision)
    assert reason in str(caught.value)


def test_words_of_an_entry_count_in_any_case_and_once() -> None:
    entry = make_entry("topic:a*", ["pub", "PUB", "sub"], [" 10.0.0.1 "], "ALLOW")
    assert str(entry) == "Allow Pub,Sub on Topic:a* from 10.0.0.1"
    assert entry.resource == "Topic:a*"


@pytest.mark.parametrize("key", ["*", "Topic:*", "Group:g", "Cluster:c*", "Namespace:n", "Topic:%RETRY%g"])
def test_a_pattern_is_written_as_it_was_read(key: str) -> None:
    assert str(parse_pattern(key)) == key


def test_a_users_password_is_not_shown() -> None:
    assert repr(User("u", "topsecret")) == "User('u', ******, Normal, enable)"
    assert PolicyType("Custom") is PolicyType.CUSTOM
