"""Which brokers `-b` and `-c` mean."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from mq.admin.command import Done
from mqclient import Admin
from mqclient.admin_calls import at_each


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
