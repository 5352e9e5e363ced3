"""Of what one member says to another some messages are lost, and the connection stays."""

from nemeses.messages.message_nemesis import MessageNemesis
from proxies.frame_stream import Fate

from faults.nemesis import NemesisSpec, TargetKind


class LostMessages(MessageNemesis):
    spec = NemesisSpec(name="lost_messages", targets=(TargetKind.LINK,), duration_ms=(3_000, 10_000))
    fate = Fate.DROP
    share = 0.2
