"""All nemeses of fault runs, by whose group they can act on. A new one is a line here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from fault_runs.our_group import OurGroup
from nemeses.clients.client_answers_cut import ClientAnswersCut
from nemeses.clients.client_link_cut import ClientLinkCut
from nemeses.clients.client_link_down import ClientLinkDown
from nemeses.clients.client_link_latency import ClientLinkLatency
from nemeses.clients.client_link_reset import ClientLinkReset
from nemeses.clock_jump import ClockJump
from nemeses.disks.damaged_file import DamagedFile
from nemeses.disks.failed_syncs import FailedSyncs
from nemeses.disks.failed_writes import FailedWrites
from nemeses.disks.full_disk import FullDisk, FullDisks
from nemeses.disks.hung_syncs import HungSyncs
from nemeses.disks.lost_power import LostPower, LostPowerOfAll
from nemeses.disks.slow_syncs import SlowSyncs
from nemeses.disks.unreadable_pages import UnreadablePages
from nemeses.kill import Kill
from nemeses.kill_all import KillAll
from nemeses.links.bridge import Bridge
from nemeses.links.isolated_member import IsolatedMember
from nemeses.links.link_bandwidth import LinkBandwidth
from nemeses.links.link_cut import LinkCut
from nemeses.links.link_down import LinkDown
from nemeses.links.link_latency import LinkLatency
from nemeses.links.link_limit_data import LinkLimitData
from nemeses.links.link_reset import LinkReset
from nemeses.links.link_slicer import LinkSlicer
from nemeses.links.link_slow_close import LinkSlowClose
from nemeses.links.one_way_ring import OneWayRing
from nemeses.messages.doubled_messages import DoubledMessages
from nemeses.messages.lost_messages import LostMessages
from nemeses.messages.overtaken_messages import OvertakenMessages
from nemeses.name_server_loss import NameServerLoss
from nemeses.nemesis import Group, Nemesis, NemesisError
from nemeses.pause import Pause
from proxies.client_links import ClientLinks
from proxies.links import Links

# Each is made before the group is started, so that it can ask for links, disks or conf lines. What it cannot do
# without, and what is not here, it says with NemesisError, or by what would skip a test.
OF_ANY_GROUP: Sequence[Callable[[Group], Nemesis]] = (
    Kill,
    KillAll,
    NameServerLoss,
    Pause,
)
OF_OUR_GROUP: Sequence[Callable[[OurGroup], Nemesis]] = (
    ClockJump,
    FailedSyncs,
    FailedWrites,
    SlowSyncs,
    HungSyncs,
    FullDisk,
    FullDisks,
    UnreadablePages,
    DamagedFile,
    LostPower,
    LostPowerOfAll,
)
OF_LINKS: Sequence[Callable[[Links], Nemesis]] = (
    Bridge,
    IsolatedMember,
    LinkBandwidth,
    LinkCut,
    LinkDown,
    LinkLatency,
    LinkLimitData,
    LinkReset,
    LinkSlicer,
    LinkSlowClose,
    OneWayRing,
)
# They know our peer protocol.
OF_MESSAGES: Sequence[Callable[[Links], Nemesis]] = (
    DoubledMessages,
    LostMessages,
    OvertakenMessages,
)
OF_CLIENT_LINKS: Sequence[Callable[[ClientLinks], Nemesis]] = (
    ClientAnswersCut,
    ClientLinkCut,
    ClientLinkDown,
    ClientLinkLatency,
    ClientLinkReset,
)
# Those that draw what they do.
OF_CHANCE: Sequence[Callable[..., Nemesis]] = (
    ClockJump,
    DamagedFile,
    DoubledMessages,
    LostMessages,
    OvertakenMessages,
    UnreadablePages,
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Nemeses by their names, and what they would need."""

    names: tuple[str, ...]
    why: str


def nemeses_of(group: Group, seed: int) -> Iterator[Nemesis | LeftOut]:
    """Those that can act on it, each with dice of its own of `seed`; of the others why not."""
    makers: list[Callable[..., Nemesis]] = [*OF_ANY_GROUP]
    if isinstance(group, OurGroup):
        makers += OF_OUR_GROUP
    for make in makers:
        try:
            yield _made(make, group, seed)
        except (NemesisError, pytest.skip.Exception) as error:
            yield LeftOut(_names([make]), str(error))
    of_messages = OF_MESSAGES if isinstance(group, OurGroup) else ()
    try:
        links, client_links = group.links(), group.client_links()
    except pytest.skip.Exception as error:
        yield LeftOut(_names([*OF_LINKS, *of_messages, *OF_CLIENT_LINKS]), str(error))
        return
    yield from (_made(make, links, seed) for make in (*OF_LINKS, *of_messages))
    yield from (_made(make, client_links, seed) for make in OF_CLIENT_LINKS)


def _names(makers: Sequence[Any]) -> tuple[str, ...]:
    return tuple(make.spec.name for make in makers)


def _made(make: Callable[..., Nemesis], on: Group | Links | ClientLinks, seed: int) -> Nemesis:
    return make(on, Random(f"{seed}/{make.__name__}")) if make in OF_CHANCE else make(on)
