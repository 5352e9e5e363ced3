"""Whether a user may do something, and which rule says so. Nothing here changes anything."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from auth.policy import (
    Action,
    Decision,
    Match,
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

    def matches(self, actions: Collection[Action], source_ip: str) -> bool:
        """Of a resource that its pattern matches."""
        own = self.entry.actions
        return (Action.ALL in own or any(action in own for action in actions)) and (
            not self.networks or _is_in(source_ip, self.networks)
        )


def _is_in(source_ip: str, networks: Iterable[Network]) -> bool:
    address = address_of(source_ip)
    return address is not None and any(address in network for network in networks)


class UserRules:
    """The policies of one user. To look at those that match takes no longer where there are thousands."""

    def __init__(self, policies: Policies) -> None:
        self._rules: dict[ResourcePattern, list[_Rule]] = {}
        for policy_type in PolicyType:
            for entry in policies.of_type(policy_type).values():
                pattern = parse_pattern(entry.resource)
                networks = tuple(map(parse_network, entry.source_ips))
                self._rules.setdefault(pattern, []).append(_Rule(policy_type, entry, pattern, networks))
        self._prefix_lengths = {
            len(pattern.name) for pattern in self._rules if pattern.match is Match.PREFIXED
        }

    def _matching(self, resource: Resource) -> list[_Rule]:
        """In the order in which they are asked."""
        patterns = [
            ResourcePattern(ResourceType.ANY, Match.ANY),
            ResourcePattern(resource.type, Match.ANY),
            ResourcePattern(resource.type, Match.LITERAL, resource.name),
            *(
                ResourcePattern(resource.type, Match.PREFIXED, resource.name[:length])
                for length in self._prefix_lengths
                if length <= len(resource.name)
            ),
        ]
        found = [rule for pattern in patterns for rule in self._rules.get(pattern, ())]
        return sorted(found, key=lambda rule: rule.rank)

    def decide(
        self, username: str, resource: Resource, actions: Collection[Action], source_ip: str
    ) -> Verdict:
        """`actions`: one of them is enough."""
        refusal = f"User:{username} has no permission to access {resource} from {source_ip}, "
        for rule in self._matching(resource):
            if rule.matches(actions, source_ip):
                is_allowed = rule.entry.decision is Decision.ALLOW
                reason = "" if is_allowed else f"{refusal}the decision is deny."
                return Verdict(is_allowed, f"{rule.policy_type.value} policy: {rule.entry}", reason)
        return Verdict(False, "no policy matches", f"{refusal}no matched policies.")
