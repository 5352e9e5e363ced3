"""Less can be said from one member to another than there is to say: a follower falls behind, or its answers do."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind

RATE = 24  # KB/s, toxiproxy's
ASKED_SIZE = 36 << 10


class LinkBandwidth(LinkNemesis):
    spec = NemesisSpec(name="link_bandwidth", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(sender, receiver, "bandwidth", rate=RATE)

    def symptom(self, stream: Stream) -> str | None:
        size = {"bytes_up" if stream.is_up else "bytes_down": ASKED_SIZE}
        # Half of what it should take: toxiproxy lets the first bytes pass at once.
        return self.answers_late(stream, ASKED_SIZE / 1024 / RATE / 2, **size)
