"""Commands about NameServers. What changes something is told to each that -n names."""

from __future__ import annotations

from typing import Annotated

from mq.admin.command import Done, Result, command
from mq.admin.options import Option
from mqclient import Admin

NamespaceOption = Annotated[str, Option("-s", "--namespace")]
KeyOption = Annotated[str, Option("-k", "--key")]
ValueOption = Annotated[str, Option("-v", "--value")]
BrokerNameOption = Annotated[str, Option("-b", "--brokerName", help="Name of the broker.")]


@command
async def get_namesrv_config(admin: Admin) -> Result:
    """Settings of each NameServer."""
    return await admin.namesrv.config()


@command
async def update_namesrv_config(admin: Admin, key: KeyOption, value: ValueOption) -> Result:
    """Change a setting of each NameServer."""
    return [Done(namesrv, f"{key}={value}") for namesrv in await admin.namesrv.update_config(key, value)]


@command
async def update_kv_config(
    admin: Admin, namespace: NamespaceOption, key: KeyOption, value: ValueOption
) -> Result:
    """Set a value of the NameServers' key-value store."""
    told = await admin.namesrv.put_kv(namespace, key, value)
    return [Done(namesrv, f"{namespace}: {key}={value}") for namesrv in told]


@command
async def delete_kv_config(admin: Admin, namespace: NamespaceOption, key: KeyOption) -> Result:
    """Delete a value of the NameServers' key-value store."""
    return [
        Done(namesrv, f"{namespace}: {key} deleted")
        for namesrv in await admin.namesrv.delete_kv(namespace, key)
    ]


@command
async def wipe_write_perm(admin: Admin, broker: BrokerNameOption) -> Result:
    """Have nobody send to a broker's topics any more, before it goes."""
    return await admin.namesrv.wipe_write_perm(broker)


@command
async def add_write_perm(admin: Admin, broker: BrokerNameOption) -> Result:
    """Have a broker's topics written to again."""
    return await admin.namesrv.add_write_perm(broker)
