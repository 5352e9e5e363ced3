"""Each member is heard by the next one only: n0 by n1, n1 by n2, n2 by n0.

The ring in which everybody hears a majority, and no two the same one, needs five members: of three it is either whole
or cut in one place, which is the bridge. What is left of it for three is this: no two hear each other, so nobody can
lead, and nobody must come to believe so.
"""

from nemeses.links.link_cut import LinkCut

from faults.nemesis import WHOLE_GROUP, NemesisSpec, TargetKind


class OneWayRing(LinkCut):
    spec = NemesisSpec(
        name="one_way_ring",
        targets=(TargetKind.GROUP,),
        duration_ms=(2_000, 4_000),
        spares_majority=False,
        outage_ms=None,
    )

    def directed_links(self, target: str) -> list[tuple[str, str]]:
        members = self.links.members
        if target != WHOLE_GROUP or len(members) < 3:
            raise ValueError(f"a ring takes the whole {WHOLE_GROUP}, of three members or more")
        behind = list(zip(members, members[1:] + members[:1], strict=True))
        return [(later, earlier) for earlier, later in behind] + [
            (one, other)
            for one in members
            for other in members
            if one != other and (one, other) not in behind and (other, one) not in behind
        ]
