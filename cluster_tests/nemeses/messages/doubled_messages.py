"""Of what one member says to another some messages come twice."""

from nemeses.messages.message_nemesis import MessageNemesis
from proxies.frame_stream import Fate

from faults.nemesis import NemesisSpec, TargetKind


class DoubledMessages(MessageNemesis):
    # To hear a thing twice must cost nobody anything, and no connection closes for it.
    spec = NemesisSpec(
        name="doubled_messages",
        targets=(TargetKind.LINK,),
        duration_ms=(3_000, 10_000),
        impairs=False,
        outage_ms=0,
    )
    fate = Fate.DUPLICATE
    share = 0.5
