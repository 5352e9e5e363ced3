"""A bit flips in each kind of file of a member between its end and its start, under load."""

from pathlib import Path

import pytest
from local_cluster import wait_for
from nemeses.damaged_file import DamagedFile
from nemeses.file_kinds import KINDS
from our_group import OurGroup
from proved_load import PATIENCE_S, Load, prove

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
