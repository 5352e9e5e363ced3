"""Which brokers `-b` and `-c` mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from mq.admin.command import Done
from mqclient import Admin, AdminError
from mqclient.admin.admin_calls import at_each

T = TypeVar("T")


async def leaders_of(admin: Admin, broker: str, cluster: str) -> list[str]:
    """Those that take changes: the one that is named, a cluster's, or all."""
    return [broker] if broker else await admin.brokers.leaders(cluster)


async def members_of(admin: Admin, broker: str, cluster: str) -> list[str]:
    """Those that answer for themselves: the one that is named, a cluster's, or all."""
    return [broker] if broker else await admin.brokers.addresses(cluster)


async def broker_name_of(admin: Admin, address: str) -> str:
    info = await admin.brokers.clusters()
    for name, group in info.broker_addr_table.items():
        if address in group.broker_addrs.values():
            return name
    raise ValueError(f"no broker at {address} is registered: clusterList shows those that are")


async def done_at_each(
    addresses: Iterable[str], change: Callable[[str], Awaitable[object]], *what: str
) -> list[Done]:
    """Changes something at one broker after the other. Where one fails, its error says who has done it already."""
    return [Done(address, item) for address in await at_each(addresses, change) for item in what]


async def seen_at_each(
    admin: Admin, broker: str, cluster: str, look: Callable[[str], Awaitable[T]]
) -> tuple[dict[str, T], dict[str, str]]:
    """What each member answers, and of those that do not, why and what to do; all are asked at the same time.

    Raises AdminError when the one that `-b` names does not answer: there is nothing else to be seen then.
    """
    addresses = await members_of(admin, broker, cluster)
    ends = await asyncio.gather(*map(look, addresses), return_exceptions=True)
    seen: dict[str, T] = {}
    silent: dict[str, str] = {}
    for address, end in zip(addresses, ends, strict=True):
        if not isinstance(end, BaseException):
            seen[address] = end
        elif isinstance(end, AdminError) and not broker:
            silent[address] = f"{end}{_advice(end)}"
        else:
            raise end
    return seen, silent


def _advice(error: AdminError) -> str:
    """A member that refuses says itself what to do."""
    has_answered = error.code != -1 or not error.retriable
    return "" if has_answered else ": start it if it is down; if it is up, its log says why it hangs"
