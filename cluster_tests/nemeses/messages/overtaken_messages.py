"""Of what one member says to another some messages come behind the next one."""

from nemeses.messages.message_nemesis import MessageNemesis
from proxies.frame_stream import Fate

from faults.nemesis import NemesisSpec, TargetKind


class OvertakenMessages(MessageNemesis):
    # A push that comes before the one in front of it leads back to COMPARE: the follower cannot be counted on.
    spec = NemesisSpec(name="overtaken_messages", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))
    fate = Fate.REORDER
    share = 0.3
