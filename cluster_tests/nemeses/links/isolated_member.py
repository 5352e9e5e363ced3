"""A member hears nobody and is heard by nobody, without a connection closing."""

from nemeses.links.link_cut import LinkCut

from faults.nemesis import NemesisSpec, TargetKind


class IsolatedMember(LinkCut):
    spec = NemesisSpec(
        name="isolated_member",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(3_000, 8_000),
    )

    def directed_links(self, target: str) -> list[tuple[str, str]]:
        if target not in self.links.members:
            raise ValueError("no member")
        others = [member for member in self.links.members if member != target]
        return [link for other in others for link in ((target, other), (other, target))]
