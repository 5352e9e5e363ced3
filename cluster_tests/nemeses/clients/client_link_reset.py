"""Connections of clients to a member are reset as soon as it answers."""

from nemeses.clients.client_link_nemesis import ClientLinkNemesis, client_link_spec
from nemeses.links.link_nemesis import Stream
from proxies.impaired_proxies import Impairment


class ClientLinkReset(ClientLinkNemesis):
    spec = client_link_spec("client_link_reset", (1_000, 4_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(receiver, "downstream", "reset_peer", timeout=0)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_closed(stream)
