"""A scrub of one member, now."""

from nemeses.nemesis import NemesisError

from mqclient import Admin
from mqclient.errors import MQClientError


async def scrub(namesrv: str, address: str) -> None:
    """It has begun when this returns. Raises NemesisError."""
    try:
        async with Admin(namesrv) as admin:
            await admin.brokers.scrub(address)
    except MQClientError as error:
        raise NemesisError(f"{address} does not begin a scrub: {error}") from error
