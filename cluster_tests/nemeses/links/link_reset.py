"""Connections that carry what one member says to another are reset as soon as it says anything."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind


class LinkReset(LinkNemesis):
    """Both directions are lost: to ask and to answer on one connection, both sides have to speak."""

    spec = NemesisSpec(name="link_reset", targets=(TargetKind.LINK,), duration_ms=(1_000, 5_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(sender, receiver, "reset_peer", timeout=0)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_closed(stream)
