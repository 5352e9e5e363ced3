"""All nemeses of fault runs, by whose group they can act on. A new one is a line here."""

from collections.abc import Callable, Iterator, Sequence

import pytest
from nemeses.clock_jump import ClockJump
from nemeses.failed_syncs import FailedSyncs
from nemeses.failed_writes import FailedWrites
from nemeses.full_disk import FullDisk, FullDisks
from nemeses.hung_syncs import HungSyncs
from nemeses.kill import Kill
from nemeses.kill_all import KillAll
from nemeses.lost_power import LostPower, LostPowerOfAll
from nemeses.name_server_loss import NameServerLoss
from nemeses.nemesis import Group, Nemesis, NemesisError
from nemeses.pause import Pause
from nemeses.slow_syncs import SlowSyncs
from nemeses.unreadable_pages import UnreadablePages
from our_group import OurGroup

# Each is made before the group is started, so that it can ask for links, disks or conf lines. What it cannot do
# without, and what is not here, it says with NemesisError, or by what would skip a test.
OF_ANY_GROUP: Sequence[Callable[[Group], Nemesis]] = (
    Kill,
    KillAll,
    Pause,
)
OF_OUR_GROUP: Sequence[Callable[[OurGroup], Nemesis]] = (
    NameServerLoss,
    ClockJump,
    FailedSyncs,
    FailedWrites,
    SlowSyncs,
    HungSyncs,
    FullDisk,
    FullDisks,
    UnreadablePages,
    LostPower,
    LostPowerOfAll,
)


def nemeses_of(group: Group) -> Iterator[Nemesis | str]:
    """Those that can act on it; of the others why not, in words."""
    makers: list[Callable[..., Nemesis]] = [*OF_ANY_GROUP]
    if isinstance(group, OurGroup):
        makers += OF_OUR_GROUP
    for make in makers:
        try:
            yield make(group)
        except (NemesisError, pytest.skip.Exception) as error:
            yield f"{getattr(make, '__name__', make)}: {error}"
