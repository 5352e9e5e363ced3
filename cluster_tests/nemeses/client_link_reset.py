"""Connections of clients to a member are reset as soon as it answers."""

from impaired_proxies import Impairment
from nemeses.client_link_nemesis import ClientLinkNemesis
from nemeses.link_nemesis import Stream

from faults.nemesis import NemesisSpec, TargetKind


class ClientLinkReset(ClientLinkNemesis):
    spec = NemesisSpec(
        name="client_link_reset",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(1_000, 4_000),
        impairs=False,
        outage_ms=None,  # it may be the leader that they cannot reach, and it leads on
    )

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(receiver, "downstream", "reset_peer", timeout=0)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_closed(stream)
