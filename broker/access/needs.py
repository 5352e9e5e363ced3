"""What a sender needs a permission for: the resources that a request names, and actions of which one is enough."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from auth.policy import Action, ResourceType

CHANGES = frozenset({Action.CREATE, Action.UPDATE, Action.DELETE})
_FIELDS = {ResourceType.TOPIC: ("topic",), ResourceType.GROUP: ("consumer_group", "group", "group_name")}

# (header, body): the names of topics or groups in them.
Names = Callable[[Any, Any], Iterable[str]]


class Need(msgspec.Struct, frozen=True):
    """A permission for one of the actions on each resource of this kind that the request names.

    `resource`: None: nothing is needed. `names`: None for the cluster, of which there is one. `is_in_handler`: only the
    handler finds out the topic, and asks Request.refusal_of_topic().
    """

    resource: ResourceType | None
    actions: frozenset[Action]
    names: Names | None = None
    is_in_handler: bool = False


def topic(*actions: Action, names: Names | None = None, is_in_handler: bool = False) -> Need:
    """A retry topic stands for its group. Without `names` the field of that name is meant."""
    return Need(ResourceType.TOPIC, frozenset(actions), names, is_in_handler)


def group(*actions: Action, names: Names | None = None) -> Need:
    return Need(ResourceType.GROUP, frozenset(actions), names)


def cluster(*actions: Action) -> Need:
    return Need(ResourceType.CLUSTER, frozenset(actions))


NOTHING = Need(None, frozenset())


def with_names(
    needs: Iterable[Need], header: type[msgspec.Struct], body: type[msgspec.Struct] | None
) -> tuple[Need, ...]:
    """The needs of a row, each with the way to its names. Raises TypeError for a row that names nothing."""
    return tuple(_with_names(need, header, body) for need in needs)


def _with_names(need: Need, header: type[msgspec.Struct], body: type[msgspec.Struct] | None) -> Need:
    if need.names is not None or need.is_in_handler or need.resource not in _FIELDS:
        return need
    for field in _FIELDS[need.resource]:
        if field in header.__struct_fields__:
            return msgspec.structs.replace(need, names=_in_header(field))
        if body is not None and field in body.__struct_fields__:
            return msgspec.structs.replace(need, names=_in_body(field))
    raise TypeError(f"{header.__name__} names no {need.resource.value}")


def _in_header(field: str) -> Names:
    return lambda header, body: _given(getattr(header, field))


def _in_body(field: str) -> Names:
    return lambda header, body: _given(getattr(body, field))


def _given(name: str | None) -> tuple[str, ...]:
    """A request may leave out a name whose field has a default: then it is about nothing of that kind."""
    return () if name is None else (name,)


def is_administration(needs: Iterable[Need]) -> bool:
    """Whether nothing less than the permission to change something is enough. Producers and consumers send no such
    request by themselves.
    """
    return any(need.actions and need.actions <= CHANGES for need in needs)
