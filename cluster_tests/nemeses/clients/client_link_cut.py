"""What clients say does not reach a member, and no connection closes: they wait until their time is over."""

from nemeses.clients.client_link_nemesis import ClientLinkNemesis, client_link_spec
from nemeses.links.link_nemesis import Stream
from proxies.impaired_proxies import Impairment


class ClientLinkCut(ClientLinkNemesis):
    spec = client_link_spec("client_link_cut", (2_000, 6_000))
    way = "upstream"

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(receiver, self.way, "timeout", timeout=0)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_silent(stream)
