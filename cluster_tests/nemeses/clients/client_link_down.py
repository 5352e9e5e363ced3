"""Connections of clients to a member close, and they get no new ones."""

from nemeses.clients.client_link_nemesis import ClientLinkNemesis, client_link_spec
from nemeses.links.link_nemesis import Stream
from proxies.impaired_proxies import Impairment


class ClientLinkDown(ClientLinkNemesis):
    spec = client_link_spec("client_link_down", (1_000, 6_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.take_down(receiver)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_closed(stream)
