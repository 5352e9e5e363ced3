"""What one member says to another comes late, now more, now less."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind

LATENCY_MS, JITTER_MS = 300, 100


class LinkLatency(LinkNemesis):
    spec = NemesisSpec(name="link_latency", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(sender, receiver, "latency", latency=LATENCY_MS, jitter=JITTER_MS)

    def symptom(self, stream: Stream) -> str | None:
        # As many answers come down as questions go up.
        return self.answers_late(stream, self.links.passes_up * (LATENCY_MS - JITTER_MS) / 1000)
