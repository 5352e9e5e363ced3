"""What members answer comes to clients late, now more, now less."""

from impaired_proxies import Impairment
from nemeses.client_link_nemesis import ClientLinkNemesis
from nemeses.link_nemesis import Stream

from faults.nemesis import NemesisSpec, TargetKind

LATENCY_MS, JITTER_MS = 400, 100


class ClientLinkLatency(ClientLinkNemesis):
    spec = NemesisSpec(
        name="client_link_latency",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(3_000, 10_000),
        impairs=False,
    )

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(receiver, "downstream", "latency", latency=LATENCY_MS, jitter=JITTER_MS)

    def symptom(self, stream: Stream) -> str | None:
        return self.answers_late(stream, (LATENCY_MS - JITTER_MS) / 1000)
