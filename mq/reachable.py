"""Is there a leader to send to or read from? Asked before the first message, so that a command that nobody can serve
ends soon, with one sentence.
"""

from __future__ import annotations

import asyncio

from message.names import AUTO_CREATE_TOPIC_KEY_TOPIC, topic_fault
from mqclient import Admin, AdminError
from remoting.bodies.bodies import MASTER_ID
from remoting.codes import ResponseCode

# Longer than an election takes, and than brokers need to tell a NameServer that has just started.
WAIT_S = 3.0
_POLL_INTERVAL_S = 0.1


async def wait_for_leader(namesrv: str, wait_s: float = WAIT_S) -> None:
    """Returns as soon as one broker has a leader.

    Raises AdminError: at once where no NameServer answers, after `wait_s` where no broker is registered or none has a
    leader.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_s
    async with Admin(namesrv) as admin:
        while not any((leaders := await _leaders(admin)).values()):
            if loop.time() >= deadline:
                await admin.brokers.addresses()  # raises where no broker is
                raise _leaderless(leaders)
            await asyncio.sleep(_POLL_INTERVAL_S)


async def check_sendable(namesrv: str, topic: str) -> None:
    """Raises AdminError as wait_for_leader() does, and for a topic that is not there and that no broker makes by
    itself.
    """
    await wait_for_leader(namesrv)
    if fault := topic_fault(topic):
        raise AdminError(fault)
    async with Admin(namesrv) as admin:
        for name in (topic, AUTO_CREATE_TOPIC_KEY_TOPIC):
            try:
                await admin.topics.route(name)
                return
            except AdminError as error:
                if error.code != ResponseCode.TOPIC_NOT_EXIST:
                    raise
    raise AdminError(
        f"there is no topic {topic}, and no broker makes topics by itself: `mq admin updateTopic -t {topic}` makes it"
    )


async def check_leaders(namesrv: str, topic: str) -> None:
    """Raises AdminError when a broker that has the topic has no leader now."""
    async with Admin(namesrv) as admin:
        leaders = {row.broker: row.leader for row in await admin.topics.route(topic)}
    if None in leaders.values():
        raise _leaderless(leaders)


async def _leaders(admin: Admin) -> dict[str, str | None]:
    brokers = (await admin.brokers.clusters()).broker_addr_table
    return {name: broker.broker_addrs.get(MASTER_ID) for name, broker in brokers.items()}


def _leaderless(leaders: dict[str, str | None]) -> AdminError:
    names = ", ".join(sorted(name for name, leader in leaders.items() if leader is None))
    return AdminError(
        f"broker {names} has no leader now: a majority of its members must be up; `mq cluster status` or their logs "
        "say what it waits for",
        retriable=True,
    )
