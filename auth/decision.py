"""Whether a user may do something, and which rule says so. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from auth.policy import (
    Action,
    Decision,
    Network,
    Policies,
    PolicyEntry,
    PolicyType,
    Resource,
    ResourcePattern,
    ResourceType,
    address_of,
    parse_network,
    parse_pattern,
)


class Verdict(msgspec.Struct, frozen=True):
    """`rule`: what decided, for people."""

    is_allowed: bool
    rule: str
    reason: str = ""  # why it is refused, in RocketMQ's words


class _Rule(msgspec.Struct, frozen=True):
    policy_type: PolicyType
    entry: PolicyEntry
    pattern: ResourcePattern
    networks: tuple[Network, ...]

    @property
    def rank(self) -> tuple[bool, bool, int, int, bool]:
        """The first that matches decides: Custom before Default, a type before any, exact names before prefixes, long
        prefixes before short ones, and a refusal before what allows the same.
        """
        return (
            self.policy_type is PolicyType.DEFAULT,
            self.pattern.type is ResourceType.ANY,
            self.pattern.match.value,
            -len(self.pattern.name),
            self.entry.decision is Decision.ALLOW,
        )

    def matches(self, resource: Resource, actions: Collection[Action], source_ip: str) -> bool:
        own = self.entry.actions
        return (
            (Action.ALL in own or any(action in own for action in actions))
            and self.pattern.matches(resource)
            and (not self.networks or _is_in(source_ip, self.networks))
        )


def _is_in(source_ip: str, networks: Iterable[Network]) -> bool:
    address = address_of(source_ip)
    return address is not None and any(address in network for network in networks)


class UserRules:
    """The policies of one user, in the order in which they are asked."""

    def __init__(self, policies: Policies) -> None:
        rules = [
            _Rule(
                policy_type,
                entry,
                parse_pattern(entry.resource),
                tuple(map(parse_network, entry.source_ips)),
            )
            for policy_type in PolicyType
            for entry in policies.of_type(policy_type).values()
        ]
        self._rules = sorted(rules, key=lambda rule: rule.rank)

    def decide(
        self, username: str, resource: Resource, actions: Collection[Action], source_ip: str
    ) -> Verdict:
        """`actions`: one of them is enough."""
        refusal = f"User:{username} has no permission to access {resource} from {source_ip}, "
        for rule in self._rules:
            if rule.matches(resource, actions, source_ip):
                is_allowed = rule.entry.decision is Decision.ALLOW
                reason = "" if is_allowed else f"{refusal}the decision is deny."
                return Verdict(is_allowed, f"{rule.policy_type.value} policy: {rule.entry}", reason)
        return Verdict(False, "no policy matches", f"{refusal}no matched policies.")
