"""Connections of clients to a member close, and they get no new ones."""

from impaired_proxies import Impairment
from nemeses.client_link_nemesis import ClientLinkNemesis
from nemeses.link_nemesis import Stream

from faults.nemesis import NemesisSpec, TargetKind


class ClientLinkDown(ClientLinkNemesis):
    spec = NemesisSpec(
        name="client_link_down",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(1_000, 6_000),
        impairs=False,
        outage_ms=None,  # it may be the leader that they cannot reach, and it leads on
    )

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.take_down(receiver)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_closed(stream)
