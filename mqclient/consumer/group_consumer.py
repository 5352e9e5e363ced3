"""What every consumer of an application does alike: it joins its group, and leaves it."""

from __future__ import annotations

from typing import Self

from mqclient.consumer.group_member import GroupMember


class GroupConsumer:
    """A member of a group as the application holds it."""

    _member: GroupMember

    @property
    def client_id(self) -> str:
        return self._member.instance.client_id

    @property
    def topics_without_route(self) -> list[str]:
        """Subscribed topics that no NameServer has known so far, or that none could be asked for."""
        return self._member.topics_without_route

    async def start(self) -> None:
        """Joins the group. Topics that do not exist yet are looked for again with each rebalance.

        Raises LocalOffsetsError if a broadcasting member's offsets cannot be read, or could not be kept.
        """
        await self._member.start()

    async def close(self) -> None:
        """Leaves the group, after a last commit unless `auto_commit` is off. A task that waits for messages gets none.

        Cancelled, it leaves out what it was at, and still ends all that this consumer holds.
        """
        await self._member.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
