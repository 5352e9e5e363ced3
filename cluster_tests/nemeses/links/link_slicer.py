"""What one member says to another comes in scraps, with pauses between them: frames are cut anywhere."""

from nemeses.links.link_nemesis import LinkNemesis, Stream
from proxies.impaired_proxies import Impairment

from faults.nemesis import NemesisSpec, TargetKind

AVERAGE_SIZE, SIZE_VARIATION = 1_024, 512  # bytes
PAUSE_US = 40_000
ASKED_SIZE = 24 << 10


class LinkSlicer(LinkNemesis):
    spec = NemesisSpec(name="link_slicer", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(
            sender,
            receiver,
            "slicer",
            average_size=AVERAGE_SIZE,
            size_variation=SIZE_VARIATION,
            delay=PAUSE_US,
        )

    def symptom(self, stream: Stream) -> str | None:
        size = {"bytes_up" if stream.is_up else "bytes_down": ASKED_SIZE}
        # Each scrap is followed by a pause, and of this size at most.
        scraps = ASKED_SIZE // (AVERAGE_SIZE + SIZE_VARIATION)
        return self.answers_late(stream, scraps * PAUSE_US / 1e6, **size)
