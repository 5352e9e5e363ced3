"""The connections that one member dials to another close, and it gets no new ones; it still answers the other."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind


class LinkDown(LinkNemesis):
    spec = NemesisSpec(name="link_down", targets=(TargetKind.LINK,), duration_ms=(1_000, 8_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.take_down(sender, receiver)

    def streams(self, sender: str, receiver: str) -> list[Stream]:
        return [Stream(sender, receiver, is_up=True)]

    def symptom(self, stream: Stream) -> str | None:
        return self.is_closed(stream)
