"""What nemeses on the links from clients share: they are as those on links between members, with a client's question.

No member is impaired by one. The member that clients cannot reach leads on, though, so that nobody may be able to send.
"""

from __future__ import annotations

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.client_links import ClientLinks

from faults.nemesis import OUTAGE_MS, NemesisSpec, TargetKind

CLIENTS = "clients"


def client_link_spec(
    name: str, duration_ms: tuple[int, int], *, keeps_clients_away: bool = True
) -> NemesisSpec:
    """`keeps_clients_away`: none gets an answer of the member, as long as it lasts. That may be the leader's, who leads
    on.
    """
    return NemesisSpec(
        name=name,
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=duration_ms,
        impairs=False,
        outage_ms=None if keeps_clients_away else OUTAGE_MS,
        while_leading=True,  # nobody sends to a follower
    )


class ClientLinkNemesis(LinkNemesis):
    """On the link of all clients to the member that is its target."""

    links: ClientLinks  # type: ignore[assignment]

    def __init__(self, links: ClientLinks) -> None:
        super().__init__(links)  # type: ignore[arg-type]

    def directed_links(self, target: str) -> list[tuple[str, str]]:
        if target not in self.links.members:
            raise ValueError("no member")
        return [(CLIENTS, target)]

    def streams(self, sender: str, receiver: str) -> list[Stream]:
        return [Stream(sender, receiver, is_up=True)]

    def _through(self, stream: Stream) -> str:
        return self.links.address(stream.peer)
