"""What is still to come when nobody sends any more: what groups have not consumed, and what waits in brokers."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from workload.client_process import Client

from mqclient import Admin, MQClientError

ASK_S = 0.5
DELIVERED_WITHIN_S = 40.0  # what waits for a check or for its time, on a busy machine


def are_at_ends(namesrv: str, groups: Iterable[tuple[str, str]]) -> bool:
    """Whether each of these (group, topic) has consumed all; to be asked when nobody sends any more. From a thread
    without a loop.
    """
    return asyncio.run(_are_at_ends(namesrv, groups))


async def _are_at_ends(namesrv: str, groups: Iterable[tuple[str, str]]) -> bool:
    try:
        async with Admin(namesrv) as admin:
            progress = [await admin.groups.progress(group, topic) for group, topic in groups]
    except MQClientError:
        return False
    return all(rows and all(row.diff <= 0 for row in rows) for rows in progress)


async def none_waits(client: Client, waiting: Callable[[Admin, str], Awaitable[int]]) -> None:
    """Returns when nothing waits at a leader, which `waiting` asks at an address, or after DELIVERED_WITHIN_S: what has
    not come by then is the judge's to name.
    """
    try:
        async with asyncio.timeout(DELIVERED_WITHIN_S), Admin(client.namesrv) as admin:
            while True:
                try:
                    leaders = await admin.brokers.leaders("")
                    if leaders and not sum([await waiting(admin, leader) for leader in leaders]):
                        return
                except MQClientError:
                    pass  # no leader yet
                await asyncio.sleep(ASK_S)
    except TimeoutError:
        pass
