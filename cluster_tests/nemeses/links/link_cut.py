"""Nothing of what one member says reaches another, without a connection closing: a partition in one direction."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind


class LinkCut(LinkNemesis):
    spec = NemesisSpec(name="link_cut", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.cut(sender, receiver)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_silent(stream)
