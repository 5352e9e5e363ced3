"""A member gets all that clients say, and its answers do not come: what it stored they cannot know."""

from impaired_proxies import Impairment
from nemeses.client_link_nemesis import ClientLinkNemesis
from nemeses.link_nemesis import Stream

from faults.nemesis import NemesisSpec, TargetKind


class ClientAnswersCut(ClientLinkNemesis):
    spec = NemesisSpec(
        name="client_answers_cut",
        targets=(TargetKind.MEMBER, TargetKind.LEADER),
        duration_ms=(2_000, 6_000),
        impairs=False,
        outage_ms=None,  # it may be the leader that they cannot reach, and it leads on
    )

    def impair(self, sender: str, receiver: str) -> Impairment:
        return self.links.impair(receiver, "downstream", "timeout", timeout=0)

    def symptom(self, stream: Stream) -> str | None:
        return self.is_silent(stream)
