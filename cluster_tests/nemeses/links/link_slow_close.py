"""That a connection is closed is heard late on one side: of a member that dies, its peers hear late."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind

DELAY_MS = 1_000


class LinkSlowClose(LinkNemesis):
    # Nothing that is said is late. What dies meanwhile is missed by its heartbeats, as with a cut cable.
    spec = NemesisSpec(
        name="link_slow_close", targets=(TargetKind.LINK,), duration_ms=(5_000, 10_000), impairs=False
    )

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(sender, receiver, "slow_close", delay=DELAY_MS)

    def symptom(self, stream: Stream) -> str | None:
        return self.closes_late(stream, DELAY_MS / 1000)
