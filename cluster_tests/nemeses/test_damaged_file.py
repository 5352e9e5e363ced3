"""A bit flips in each kind of file of a member between its end and its start, under load."""

from pathlib import Path

import pytest
from fault_runs.our_group import OurGroup
from local_cluster import wait_for
from nemeses.disks.damaged_file import DamagedFile
from nemeses.disks.file_kinds import KINDS
from nemeses.nemesis import NemesisError
from proved_load import PATIENCE_S, Load, prove

from mq.cluster import ClusterError

pytestmark = [pytest.mark.slow, pytest.mark.long]

# Small files, so that there is one of each kind soon. Damage above the synced mark is another fault.
CONF = {
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "100",
    "flushConsumeQueueThoroughInterval": "1000",
    "flushConsumerOffsetInterval": "1000",
    "pyDLedgerScrubBytesPerSecond": str(1 << 28),
}
# Made when there is damage to note, or when many keys have come: maybe too late for their turn.
MAYBE_NOT_YET = {"slot of faulty-ranges", "slot of key-index-mark", "IndexFile"}


def test_each_kind_of_file_is_damaged_in_turn_and_repaired(our_group: OurGroup, tmp_path: Path) -> None:
    our_group.conf |= CONF
    our_group.up()
    cluster, members = our_group.cluster, our_group.members
    cluster.leader(PATIENCE_S)
    nemesis = DamagedFile(our_group)
    told = []
    with Load(cluster, tmp_path / "history.jsonl") as load:
        load.goes_on(400)
        for number in range(len(KINDS)):
            nemesis.begin(members[number % len(members)])
            told.append(wait_for(nemesis.evidence, PATIENCE_S, "evidence"))
            print(told[-1])
            load.goes_on(20)
            nemesis.end()
            wait_for(lambda: nemesis.is_repaired, PATIENCE_S, f"the repair: {told[-1]}")
    met = {kind for kind in KINDS if any(f": {kind}, " in one for one in told)}
    assert met >= KINDS.keys() - MAYBE_NOT_YET
    assert load.failed == []
    prove(cluster, load)


def test_a_member_that_does_not_start_with_its_damage_is_started_at_the_end(
    our_group: OurGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For it has no room, where another fault has its disk full."""
    our_group.conf |= CONF
    our_group.up()
    cluster = our_group.cluster
    leader = cluster.leader(PATIENCE_S)
    member = next(member for member in our_group.members if member != leader)
    nemesis = DamagedFile(our_group)

    def without_room(member: str) -> None:
        raise ClusterError(f"{member} ended while starting: no space left")

    with Load(cluster, tmp_path / "history.jsonl") as load:
        load.goes_on(400)
        with monkeypatch.context() as patched:
            patched.setattr(our_group, "start", without_room)
            with pytest.raises(NemesisError, match="no space left"):
                nemesis.begin(member)
        nemesis.end()
        told = wait_for(nemesis.evidence, PATIENCE_S, "evidence")
        wait_for(lambda: nemesis.is_repaired, PATIENCE_S, f"the repair: {told}")
        load.goes_on(20)
    prove(cluster, load)
