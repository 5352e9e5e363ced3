"""Members lose power under load, one and all at once, with and without other libraries preloaded beside the shim."""

import os
from pathlib import Path

import pytest
from fault_runs.our_group import OurGroup
from local_cluster import wait_for
from nemeses.disks.failed_syncs import FailedSyncs
from nemeses.disks.lost_power import LostPower, LostPowerOfAll
from nemeses.nemesis import Nemesis
from power_loss.durable_stores import mirror
from proved_load import PATIENCE_S, Load, prove

pytestmark = [pytest.mark.slow, pytest.mark.long]

CONF = {"mappedFileSizeCommitLog": str(4 << 20)}


def fire(load: Load, nemesis: Nemesis, target: str) -> None:
    nemesis.begin(target)
    print(wait_for(nemesis.evidence, PATIENCE_S, f"evidence of {nemesis.spec.name}"))
    if nemesis.spec.spares_majority:
        load.goes_on(20)
    nemesis.end()
    load.goes_on(20)


def test_nothing_acknowledged_is_lost_with_the_power_whatever_else_is_preloaded(
    our_group: OurGroup, tmp_path: Path
) -> None:
    one, all_of_them, failed_syncs = LostPower(our_group), LostPowerOfAll(our_group), FailedSyncs(our_group)
    our_group.clocks()
    our_group.conf |= CONF
    our_group.up()
    cluster = our_group.cluster
    with Load(cluster, tmp_path / "history.jsonl", timeout_s=PATIENCE_S) as load:
        fire(load, one, cluster.leader(PATIENCE_S))
        fire(load, all_of_them, "group")
        # A failed sync makes nothing durable: the one library hears of it before the other.
        fire(load, failed_syncs, cluster.leader(PATIENCE_S))
        fire(load, all_of_them, "group")
    prove(cluster, load)


def test_a_mirror_copies_what_differs_and_removes_what_is_not_there(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "sub").mkdir(parents=True)
    (source / "sub" / "a").write_bytes(b"one")
    (source / "same").write_bytes(b"same")
    assert [path.name for path in mirror(source, target)[0]] == ["same", "a"]
    (source / "sub" / "a").write_bytes(b"two")
    os.utime(source / "sub" / "a", ns=(1, 1))
    os.utime(source / "same", ns=(1, 1))
    (target / "other").mkdir()
    (target / "other" / "b").write_bytes(b"b")
    changed, gone = mirror(source, target)
    assert ([path.name for path in changed], [path.name for path in gone]) == (["a"], ["b"])
    assert (target / "sub" / "a").read_bytes() == b"two"
    assert not (target / "other").exists()
    assert mirror(source, target) == ((), ())
