"""Each nemesis of disk_nemesis.py alone, once, on a real group under load: it happens, and all is well afterwards."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_runs.our_group import OurGroup
from local_cluster import port_block, wait_for
from nemeses.around_store import log_file
from nemeses.disks.disk_nemesis import DISK_NEMESES, DiskNemesis
from nemeses.disks.failed_syncs import FailedSyncs
from nemeses.disks.failed_writes import FailedWrites
from nemeses.disks.full_disk import FullDisk, FullDisks
from nemeses.disks.hung_syncs import HungSyncs
from nemeses.disks.slow_syncs import SlowSyncs
from nemeses.disks.unreadable_pages import UnreadablePages
from nemeses.nemesis import Nemesis
from proved_load import BODY, PATIENCE_S, Load, prove

pytestmark = [pytest.mark.slow, pytest.mark.long]

DATA_FILE_SIZE = 256 << 10
CONF = {
    "mappedFileSizeCommitLog": str(DATA_FILE_SIZE),
    "mappedFileSizeConsumeQueue": "10000",
    "pyDLedgerStalledSyncMs": "1000",
    "pyDLedgerScrubBytesPerSecond": str(64 << 20),
}


@pytest.fixture(scope="module")
def shared_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurGroup]:
    """One for all tests here, which leave it as they found it."""
    with port_block() as base_port, pytest.MonkeyPatch.context() as patch:
        patch.setattr("mq.cluster.LISTEN_TIMEOUT_S", float(PATIENCE_S))
        group = OurGroup(tmp_path_factory.mktemp("disk_nemeses") / "cluster", base_port)
        group.conf |= CONF
        disks = group.disks()
        group.up()
        yield group
        for disk in disks.values():
            disk.lift()
        group.down()


@pytest.fixture
def group(shared_group: OurGroup) -> OurGroup:
    """That serves, each member of it."""
    for disk in shared_group.disks().values():
        disk.lift()
    shared_group.revive()  # an earlier test may have failed
    shared_group.cluster.leader(PATIENCE_S)
    shared_group.cluster.level(PATIENCE_S)
    return shared_group


def fire(load: Load, nemesis: Nemesis, target: str) -> str:
    """Its evidence, after its end."""
    nemesis.begin(target)
    try:
        wait_for(nemesis.evidence, PATIENCE_S, f"evidence of {nemesis.spec.name}")
        if nemesis.spec.spares_majority:
            load.goes_on(20)
    finally:
        nemesis.end()
    load.goes_on(20)
    evidence = nemesis.evidence()
    assert evidence is not None, "and once more after its end"
    print(nemesis.spec.name, target, evidence)
    return evidence


MEMBERS_NEMESES: list[Callable[[OurGroup], DiskNemesis]] = [
    FailedSyncs,
    FailedWrites,
    SlowSyncs,
    HungSyncs,
    FullDisk,
]


@pytest.mark.parametrize("role", ["leader", "follower"])
@pytest.mark.parametrize("make", MEMBERS_NEMESES)
def test_what_breaks_a_members_disk_happens_and_fails_no_send(
    group: OurGroup,
    tmp_path: Path,
    make: Callable[[OurGroup], DiskNemesis],
    role: str,
) -> None:
    with Load(group.cluster, tmp_path / "history.jsonl") as load:
        leader = group.cluster.leader(PATIENCE_S)
        target = leader if role == "leader" else next(name for name in group.members if name != leader)
        assert fire(load, make(group), target).startswith(f"{target}: ")
    assert load.failed == []
    prove(group.cluster, load)


def test_while_all_disks_are_full_sends_are_refused_and_then_go_on(group: OurGroup, tmp_path: Path) -> None:
    with Load(group.cluster, tmp_path / "history.jsonl", timeout_s=2.0) as load:
        evidence = fire(load, FullDisks(group), "group")
    assert all(f"{name}: " in evidence for name in group.members)
    prove(group.cluster, load)


def test_pages_that_cannot_be_read_are_met_by_a_scrub_and_repaired(group: OurGroup, tmp_path: Path) -> None:
    with Load(group.cluster, tmp_path / "history.jsonl") as load:
        load.goes_on(2 * DATA_FILE_SIZE // len(BODY))
        leader = group.cluster.leader(PATIENCE_S)
        target = next(name for name in group.members if name != leader)
        # What was appended since its start lies in memory.
        group.kill(target)
        group.start(target)
        group.cluster.leader(PATIENCE_S)
        before = len(log_file(group, target).read_text())
        fire(load, UnreadablePages(group), target)

        def is_repaired() -> bool:
            return "repaired entries" in log_file(group, target).read_text()[before:]

        wait_for(is_repaired, PATIENCE_S, "the repair")
        wait_for(lambda: not group.cluster.nodes()[target]["faulty_ranges"], PATIENCE_S, "no damage left")
    prove(group.cluster, load)


def test_no_two_of_them_are_ever_on_at_once() -> None:
    specs = [
        one.spec
        for one in (FailedSyncs, FailedWrites, SlowSyncs, HungSyncs, FullDisk, FullDisks, UnreadablePages)
    ]
    assert {spec.name for spec in specs} == DISK_NEMESES
    assert all(spec.excludes >= DISK_NEMESES for spec in specs)
