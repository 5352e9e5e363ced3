"""Whether the consumer groups of a run have come to the ends of the queues, as the broker says."""

import asyncio
from collections.abc import Sequence

from workload.client_process import TOPIC

from mqclient import Admin, MQClientError


def are_at_ends(namesrv: str, groups: Sequence[str]) -> bool:
    """To be asked when nobody sends any more. From a thread without a loop."""
    return asyncio.run(_are_at_ends(namesrv, groups))


async def _are_at_ends(namesrv: str, groups: Sequence[str]) -> bool:
    try:
        async with Admin(namesrv) as admin:
            rows = [row for group in groups for row in await admin.groups.progress(group, TOPIC)]
    except MQClientError:
        return False
    return bool(rows) and all(row.diff <= 0 for row in rows)
