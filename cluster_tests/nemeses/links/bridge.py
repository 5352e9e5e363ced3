"""Two members do not hear each other, and a third hears both: of three, the bridge between two halves."""

from nemeses.links.link_cut import LinkCut

from faults.nemesis import NemesisSpec, TargetKind


class Bridge(LinkCut):
    """Its target is one of the two directions that are cut; the members at its ends are not each other's majority."""

    spec = NemesisSpec(name="bridge", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))

    def directed_links(self, target: str) -> list[tuple[str, str]]:
        [(one, other)] = super().directed_links(target)
        return [(one, other), (other, one)]
