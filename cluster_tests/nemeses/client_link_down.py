"""Connections of clients to a member close, and they get no new ones."""

from impaired_proxies import Impairment
from nemeses.client_link_nemesis import ClientLinkNemesis, client_link_spec
from nemeses.link_nemesis import Stream


class ClientLinkDown(ClientLinkNemesis):
    spec = client_link_spec("client_link_down", (1_000, 6_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.take_down(receiver)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_closed(stream)
