"""Connections live for so many bytes of what one member says to another, then they close."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind

BYTES = 64 << 10


class LinkLimitData(LinkNemesis):
    spec = NemesisSpec(name="link_limit_data", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(sender, receiver, "limit_data", bytes=BYTES)

    def symptom(self, stream: Stream) -> str | None:
        size = {"bytes_up" if stream.is_up else "bytes_down": 2 * BYTES}
        return self.is_closed(stream, **size)
