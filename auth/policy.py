"""Policies: what a normal user may do, as `mqadmin` writes it.

A policy of a user is Custom or Default, and has one entry for each resource. An entry names its resource as in
`Topic:orders`, `Topic:orders-*`, `Group:*` or `*`.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import msgspec

RESOURCE_LENGTH_MAX: Final = 255  # no topic's or group's name is longer


class PolicyError(ValueError):
    """What an entry says cannot be. The message is RocketMQ's where it has one."""


class ResourceType(StrEnum):
    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Action(StrEnum):
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"  # asked where no Custom entry matches


class Match(Enum):
    """How an entry names resources; the value is its rank where several match."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Resource(msgspec.Struct, frozen=True):
    """One thing that a request is about."""

    type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.type.value}:{self.name}"


class ResourcePattern(msgspec.Struct, frozen=True):
    """What an entry is about. Without a name: each resource of the type, and for ANY each at all."""

    type: ResourceType
    match: Match
    name: str = ""

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return "*"
        return f"{self.type.value}:{self.name}{'' if self.match is Match.LITERAL else '*'}"


def parse_pattern(key: str) -> ResourcePattern:
    """Raises PolicyError."""
    if not key.strip():
        raise PolicyError("The resource is null.")
    if key == "*":
        return ResourcePattern(ResourceType.ANY, Match.ANY)
    type_name, _, name = key.partition(":")
    found = [kind for kind in ResourceType if kind.value.lower() == type_name.lower()]
    # RocketMQ takes `Any:…` for an entry about nothing, and the first of several stars for the end of a prefix.
    is_type = bool(found) and found[0] is not ResourceType.ANY
    if not is_type or "*" in name[:-1] or not name or not name.isprintable():
        raise PolicyError(f"The resource {key!r} is none: write Topic:name, Group:prefix*, Cluster:* or *")
    if len(name) > RESOURCE_LENGTH_MAX:
        raise PolicyError(f"The resource has {len(name)} characters, {RESOURCE_LENGTH_MAX} are allowed")
    if name == "*":
        return ResourcePattern(found[0], Match.ANY)
    if name.endswith("*"):
        return ResourcePattern(found[0], Match.PREFIXED, name[:-1])
    return ResourcePattern(found[0], Match.LITERAL, name)


Network = IPv4Network | IPv6Network


def parse_network(text: str) -> Network:
    """An address or a CIDR. Raises PolicyError."""
    if not text.strip():
        raise PolicyError("The source ip is empty.")
    try:
        if "%" in text:  # a zone of one machine's
            raise ValueError
        return ip_network(text.strip(), strict=False)
    except ValueError:
        raise PolicyError("The source ip is invalid.") from None


def address_of(source_ip: str) -> IPv4Address | IPv6Address | None:
    """None for what is no address, which no network holds. `::ffff:10.0.0.1` is 10.0.0.1."""
    try:
        address = ip_address(source_ip)
    except ValueError:
        return None
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


class PolicyEntry(msgspec.Struct, frozen=True):
    """`resource` and `source_ips` as they were written, once checked. No source: from everywhere."""

    resource: str
    actions: tuple[Action, ...]
    source_ips: tuple[str, ...]
    decision: Decision

    def __str__(self) -> str:
        sources = f" from {','.join(self.source_ips)}" if self.source_ips else ""
        return f"{self.decision.value} {','.join(self.actions)} on {self.resource}{sources}"


def make_entry(
    resource: str | None,
    actions: list[str] | None,
    source_ips: list[str] | None,
    decision: str | None,
) -> PolicyEntry:
    """Of what a tool sends. Raises PolicyError, in RocketMQ's words where it refuses the same."""
    pattern = parse_pattern(resource or "")
    named = {action.value.lower(): action for action in Action}
    # RocketMQ passes over words that are no action, and so allows less than was asked for without a word.
    for word in actions or ():
        if word.lower() not in named:
            reason = "The actions can not be Any." if word.lower() == "any" else f"{word!r} is no action."
            raise PolicyError(reason)
    if not actions:
        raise PolicyError("The actions is empty.")
    for source_ip in source_ips or ():
        parse_network(source_ip)
    decisions = [item for item in Decision if item.value.lower() == (decision or "").lower()]
    if not decisions:
        raise PolicyError("The decision is null or illegal.")
    return PolicyEntry(
        str(pattern),
        tuple(dict.fromkeys(named[word.lower()] for word in actions)),
        tuple(source_ip.strip() for source_ip in source_ips or ()),
        decisions[0],
    )


class Policies(msgspec.Struct, frozen=True):
    """All of one user, by resource."""

    custom: dict[str, PolicyEntry]
    default: dict[str, PolicyEntry]

    def of_type(self, policy_type: PolicyType) -> dict[str, PolicyEntry]:
        return self.custom if policy_type is PolicyType.CUSTOM else self.default
