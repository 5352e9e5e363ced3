"""What members answer comes to clients late, now more, now less."""

from nemeses.clients.client_link_nemesis import ClientLinkNemesis, client_link_spec
from nemeses.links.link_nemesis import Stream
from proxies.impaired_proxies import Impairment

LATENCY_MS, JITTER_MS = 400, 100


class ClientLinkLatency(ClientLinkNemesis):
    spec = client_link_spec("client_link_latency", (3_000, 10_000), keeps_clients_away=False)

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(receiver, "downstream", "latency", latency=LATENCY_MS, jitter=JITTER_MS)

    def symptom(self, stream: Stream) -> str | None:
        return self.answers_late(stream, (LATENCY_MS - JITTER_MS) / 1000)
