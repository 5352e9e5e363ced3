"""ConsumeQueues, IndexFiles, checkpoints and config tables of the recorded stores."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from golden_store import DLEDGER_STORE, NODES, SINGLE_STORES, below, expected, store_files, vectors

from dledger.entry import ENTRY_HEADER_SIZE, walk
from message.decoder import walk_records
from message.dispatch_columns import DispatchColumns, scan_records
from message.sys_flag import has_consume_queue_unit
from store.errors import StoreConfigError
from store.layout.checkpoint import parse_checkpoint
from store.layout.config_json import parse_config, render_config
from store.layout.consume_queue_unit import CQ_UNIT_SIZE, pack_units, parse_units
from store.layout.index_file import (
    entry_offset,
    index_file_size,
    index_key,
    index_key_hash,
    parse_index_header,
    walk_chain,
)
from store.store_config import parse_delay_levels


def levels_of(result: str) -> dict[int, int]:
    """As Java's parser gives them: "{1=1000, 2=5000, ...}"."""
    pairs = (pair.partition("=") for pair in result.strip("{}").split(", "))
    return {int(level): int(delay_ms) for level, _, delay_ms in pairs}


DELAY_LEVELS = levels_of(vectors("delay_levels")[0]["result"][1])
SLOT_COUNT = 5000
VIEWS = (*SINGLE_STORES, f"{DLEDGER_STORE}.broker-view")
Units = dict[tuple[str, int], list[tuple[int, int, int]]]


@pytest.mark.parametrize("case", vectors("delay_levels"), ids=lambda case: case["input"] or "empty")
def test_delay_levels_are_read_as_rocketmq_reads_them(case: dict[str, Any]) -> None:
    is_read, levels = case["result"]
    if is_read:
        assert parse_delay_levels(case["input"]) == levels_of(levels)
    else:
        with pytest.raises(StoreConfigError):
            parse_delay_levels(case["input"])


def columns(view: str) -> Iterator[DispatchColumns]:
    """Of each log file, up to the end that recovery finds."""
    end = expected(view)["meta"][0]["commitlog_max_offset"]
    if view in SINGLE_STORES:
        for start, content in below(store_files(view), "commitlog"):
            offsets = [at for at, _ in walk_records(content) if start + at < end]
            yield scan_records(content, offsets, delay_levels=DELAY_LEVELS)
    else:
        for start, content in below(store_files(DLEDGER_STORE), "n0/dledger-n0/data"):
            offsets = [header.pos - start for header, _ in walk(content, start)]
            yield scan_records(content, offsets, shift=ENTRY_HEADER_SIZE, delay_levels=DELAY_LEVELS)


def dispatched(view: str) -> Units:
    """The ConsumeQueues as reput would build them from the log."""
    units: Units = defaultdict(list)
    for rows in columns(view):
        for row in range(len(rows)):
            if not has_consume_queue_unit(rows.sys_flags[row]):
                continue
            queue = units[rows.topics[row].decode(), rows.queue_ids[row]]
            assert rows.queue_offsets[row] == len(queue), "queue offsets have no gaps"
            queue.append((rows.phy_offsets[row], rows.sizes[row], rows.tags_codes[row]))
    return units


@pytest.mark.parametrize("view", VIEWS)
def test_a_scan_of_the_log_gives_the_consume_queues_that_rocketmq_has(view: str) -> None:
    said: Units = {
        (line["topic"], line["queueId"]): [(pos, size, code) for _, pos, size, code in line["units"]]
        for line in expected(view)["consumequeue"]
    }
    assert dispatched(view) == said
    assert sum(map(len, said.values())) == expected(view)["totals"][0]["cq_units"]


@pytest.mark.parametrize(
    ("store", "root"), [("single-5.5.0-clean", ""), ("single-4.9.5-clean", ""), (DLEDGER_STORE, "n0/")]
)
def test_units_are_packed_as_they_lie_in_the_files(store: str, root: str) -> None:
    view = store if store in SINGLE_STORES else f"{store}.broker-view"
    for (topic, queue_id), units in dispatched(view).items():
        files = below(store_files(store), f"{root}consumequeue/{topic}/{queue_id}")
        content = b"".join(file for _, file in files)
        packed = pack_units(*zip(*units, strict=True))
        assert len(packed) == CQ_UNIT_SIZE * len(units)
        assert content[: len(packed)] == packed
        assert parse_units(content) == units


@pytest.mark.parametrize("view", ["single-5.5.0-clean", "single-4.9.5-clean", f"{DLEDGER_STORE}.broker-view"])
def test_chains_of_the_index_file_lead_to_the_messages_that_a_query_finds(view: str) -> None:
    store = view.removesuffix(".broker-view")
    [(_, file)] = below(store_files(store), "index" if store == view else "n0/index")
    assert len(file) == index_file_size(SLOT_COUNT, 20000) == entry_offset(20000, SLOT_COUNT)
    for line in expected(view)["query_key"]:
        key_hash = index_key_hash(index_key(line["topic"], line["key"]))
        newest = [entry.phy_offset for entry in walk_chain(file, key_hash, SLOT_COUNT)][: line["maxNum"]]
        assert sorted(newest) == line["commitLogOffsets"]


def test_an_index_header_spans_what_its_entries_point_at() -> None:
    [(_, file)] = below(store_files("single-5.5.0-clean"), "index")
    header = parse_index_header(file)
    messages = expected("single-5.5.0-clean")["msg"]
    assert header.pack() == file[: len(header.pack())]
    assert header.begin_phy_offset == messages[0]["commitLogOffset"]
    assert header.begin_timestamp == messages[0]["storeTimestamp"]
    assert header.end_phy_offset == messages[-1]["commitLogOffset"]
    assert header.end_timestamp == messages[-1]["storeTimestamp"]


@pytest.mark.parametrize("store", [*SINGLE_STORES, DLEDGER_STORE])
def test_checkpoints_are_written_again_to_the_same_bytes(store: str) -> None:
    found = {path: file for path, file in store_files(store).items() if path.endswith("checkpoint")}
    checkpoints = [
        file for path, file in found.items() if path in ("checkpoint", *(f"{n}/checkpoint" for n in NODES))
    ]
    assert len(checkpoints) == (3 if store == DLEDGER_STORE else 1)
    for file in checkpoints:
        checkpoint = parse_checkpoint(file)
        assert checkpoint.pack() == file
        # The offsets at the end came with 5.x.
        assert (checkpoint.logics_physical_offset > 0) == (store in ("single-5.5.0-clean", DLEDGER_STORE))
        assert 0 <= checkpoint.min_timestamp <= checkpoint.physic_msg_timestamp


def config_files(store: str) -> dict[str, str]:
    return {
        path: file.decode()
        for path, file in store_files(store).items()
        if "config/" in path and (".json" in path)
    }


@pytest.mark.parametrize("store", [name for name in (*SINGLE_STORES, DLEDGER_STORE) if "4.9.5" not in name])
def test_config_tables_are_written_again_to_the_same_text(store: str) -> None:
    indented = {path: text for path, text in config_files(store).items() if text.startswith("{\n")}
    assert {path.rpartition("/")[2] for path in indented} >= {
        "topics.json",
        "consumerOffset.json",
        "subscriptionGroup.json",
    }
    for text in indented.values():
        assert render_config(parse_config(text)) == text


@pytest.mark.parametrize("store", [*SINGLE_STORES, DLEDGER_STORE])
def test_every_config_table_is_read(store: str) -> None:
    for path, text in config_files(store).items():
        table = parse_config(text)
        assert parse_config(render_config(table)) == table
        if path.endswith("topics.json"):
            configs: dict[str, dict[str, Any]] = table["topicConfigTable"]
            assert all(config["topicName"] == topic for topic, config in configs.items())
            assert "StoreA" in configs
        if path.endswith("consumerOffset.json"):
            assert all(
                isinstance(queue_id, int) and isinstance(offset, int)
                for offsets in table["offsetTable"].values()
                for queue_id, offset in offsets.items()
            )


def test_a_data_version_is_indented_as_fastjson_does() -> None:
    [vector] = vectors("json_bodies", "DataVersion.pretty")
    assert render_config({"counter": 3, "stateVersion": 0, "timestamp": 1700000000000}) == vector["output"]
