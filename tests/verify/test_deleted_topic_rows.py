"""Messages of a topic that was deleted are rows like others, and marked; a validation has nothing against them."""

from pathlib import Path
from typing import Any

import pytest
from derived_store import derived_findings
from store_group import StoreGroup, message

from pyspark_dledger.entry_columns import Selection
from pyspark_dledger.entry_rows import unit_batches
from store.state.table_configs import TopicConfig
from store.state.tables.topic_config_table import DeleteTopic, PutTopicConfig
from verify.replica import open_replica
from verify.work import plan


@pytest.mark.parametrize("is_clean", [True, False])
def test_messages_before_the_deletion_are_marked(tmp_path: Path, is_clean: bool) -> None:
    group = StoreGroup(tmp_path, thorough_interval_ms=500)
    group.start()
    leader = group.lead()
    for topic in ("T", "Other"):
        leader.store.propose(PutTopicConfig(TopicConfig(topic)), None, group.now_ms)
    for number in range(4):
        leader.put(message("T", body=b"old%d" % number), message("Other"))
    group.settle()
    leader.store.propose(DeleteTopic("T"), None, group.now_ms)
    leader.store.propose(PutTopicConfig(TopicConfig("T")), None, group.now_ms)
    group.settle()
    leader.put(message("T", body=b"new"))
    group.run_for(5_000)  # a checkpoint
    if is_clean:
        leader.stop()
    else:
        leader.crash()
    replica = open_replica(group.root())
    rows: list[dict[str, Any]] = [
        row
        for unit in plan([replica])
        for batch in unit_batches(unit, Selection(("topic", "of_deleted_topic", "queue_offset")))
        for row in batch.to_pylist()
    ]
    marks = [(row["topic"], row["queue_offset"]) for row in rows if row["of_deleted_topic"]]
    assert marks == [("T", number) for number in range(4)]
    assert [row["queue_offset"] for row in rows if row["topic"] == "T"] == list(range(5))
    assert derived_findings([replica]) == []
