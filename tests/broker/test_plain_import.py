"""A plain broker on a store that RocketMQ has written: every message, queue, table and offset where it was."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from golden_store import GOLDEN, unpack_store
from one_broker import GROUP_CONF, OneBroker, pull_fields, send_fields

from broker.config.config_file import read_broker_config
from broker.server import Broker
from disk.real_disk import RealDisk
from dledger.errors import DLedgerError
from message.decoder import decode_message
from remoting.codes import RequestCode, ResponseCode
from remoting.configuration import parse_properties
from store.errors import StoreConfigError, StoreDamagedError
from store.get_message import BoundaryType
from store.layout.config_json import parse_config
from store.state.config_files import read_config_files

CONF = """
mapedFileSizeCommitLog=1048576
mapedFileSizeConsumeQueue=10000
maxHashSlotNum=5000
maxIndexNum=20000
"""
# Shortly after the stores were written: what is delayed by hours still waits.
NOW_MS = 1_795_170_000_000
STORES = ("single-5.5.0-clean", "single-5.5.0-killed", "single-5.5.0-torn", "single-4.9.5-clean")


def start(root: Path) -> OneBroker:
    return OneBroker(root, CONF, is_plain=True, now_ms=NOW_MS)


def expected(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN / "store" / f"{name}.expected.jsonl.gz", "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def check(broker: OneBroker, name: str) -> None:
    """What the real broker says is in the store; more may have come behind it."""
    store = broker.store
    for line in expected(name):
        match line["type"]:
            case "msg":
                record = store.reads.look_message_by_offset(line["commitLogOffset"])
                assert record is not None
                assert len(record) == line["storeSize"]
            case "queue":
                assert store.reads.min_offset(line["topic"], line["queueId"]) == line["minOffset"]
                assert store.reads.max_offset(line["topic"], line["queueId"]) >= line["maxOffset"]
            case "consumequeue":
                queue = store.queues.find(line["topic"].encode(), line["queueId"])
                assert queue is not None
                units = [[offset, *(queue.unit(offset) or ())] for offset in range(len(line["units"]))]
                assert units == line["units"], (line["topic"], line["queueId"])
            case "offset_by_time":
                boundary = BoundaryType(line["boundary"])
                place = line["topic"], line["queueId"], line["timestamp"], boundary
                assert store.reads.offset_by_time(*place) == line["offset"], line
            case "query_key":
                assert found_by_key(broker, line) == line["commitLogOffsets"], line


def found_by_key(broker: OneBroker, line: dict[str, Any]) -> list[int]:
    """Physical offsets, as the index says that RocketMQ has filled, or we behind it."""
    query = broker.store.reads.query_message(
        line["topic"], line["key"], line["maxNum"], line["begin"], line["end"]
    )
    broker.run_until(lambda: not query.is_waiting)
    while not query.is_done:
        query.look()
    return [decode_message(record).phy_offset for record in query.records]


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_all_that_rocketmq_stored_is_served_at_the_same_offsets(tmp_path: Path, name: str) -> None:
    root = unpack_store(name, tmp_path)
    before = read_config_files(RealDisk(), str(root / "config"))
    log_before = {path.name: path.read_bytes() for path in sorted((root / "commitlog").iterdir())}
    broker = start(root)
    for _ in range(2):
        check(broker, name)
        tables = broker.store.tables
        assert tables.topic_config_table.configs == before.topic_config_table.configs
        assert tables.subscription_group_table.configs == before.subscription_group_table.configs
        assert tables.consumer_offset_table.offsets == before.consumer_offset_table.offsets
        broker.close()  # as a crash: the next start has the state from the file that was kept
        broker = start(root)
    end = next(line["commitlog_max_offset"] for line in expected(name) if line["type"] == "meta")
    for file, content in log_before.items():
        kept = max(0, min(end - int(file), len(content)))
        if kept:
            assert (root / "commitlog" / file).read_bytes()[:kept] == content[:kept]
    found = broker.store.reads.max_offset("StoreA", 0)
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("StoreA"), b"x")
    assert answer.code == ResponseCode.SUCCESS
    assert answer.ext_fields["queueOffset"] == str(found)
    broker.close()


def test_delayed_messages_that_rocketmq_left_are_delivered_when_their_time_comes(tmp_path: Path) -> None:
    root = unpack_store("single-4.9.5-clean", tmp_path)
    broker = start(root)
    before = broker.store.reads.max_offset("StoreDelay", 0)
    broker.now_ms += 3 * 3_600_000
    broker.run_for(1000)
    assert broker.store.reads.max_offset("StoreDelay", 0) == before + 1
    broker.run_for(1000)
    assert broker.store.reads.max_offset("StoreDelay", 0) == before + 1
    broker.close()


def rewritten_by_java(root: Path, name: str, change: str, to: str) -> None:
    """As RocketMQ leaves a file: without our field."""
    path = root / "config" / name
    text = path.read_text()
    assert change in text
    lines = [line for line in text.replace(change, to).splitlines() if "pydledgerAppliedIndex" not in line]
    path.write_text("\n".join(lines).replace("},\n}", "}\n}"))
    assert "pydledgerAppliedIndex" not in parse_config(path.read_text())


def committed(broker: OneBroker, offset: int) -> None:
    fields = {"consumerGroup": "g", "topic": "T", "queueId": "0", "commitOffset": str(offset)}
    assert broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == ResponseCode.SUCCESS


def served(tmp_path: Path) -> None:
    """A store of ours: six messages, an offset, a clean stop."""
    broker = OneBroker(tmp_path, is_plain=True)
    for _ in range(6):
        broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    committed(broker, 4)
    broker.run_for(6000)
    broker.close(clean=True)


def test_our_own_exports_are_not_read_back(tmp_path: Path) -> None:
    served(tmp_path)
    broker = OneBroker(tmp_path, is_plain=True)
    committed(broker, 5)
    broker.close()
    broker = OneBroker(tmp_path, is_plain=True)
    assert broker.store.reads.query_offset("g", "T", 0) == 5
    broker.close()


def test_what_rocketmq_did_with_a_store_of_ours_counts(tmp_path: Path) -> None:
    served(tmp_path)
    rewritten_by_java(tmp_path, "consumerOffset.json", "0:4", "0:6")
    broker = OneBroker(tmp_path, is_plain=True)
    assert broker.store.reads.query_offset("g", "T", 0) == 6
    assert broker.store.reads.max_offset("T", 0) == 6
    answer = broker.ask(RequestCode.PULL_MESSAGE, pull_fields("T", offset=3))
    assert answer.code == ResponseCode.SUCCESS
    committed(broker, 7)
    broker.close()
    broker = OneBroker(tmp_path, is_plain=True)
    assert broker.store.reads.query_offset("g", "T", 0) == 7, "it is taken over once"
    broker.close()


def test_a_queue_whose_messages_have_expired_goes_on_where_it_ended(tmp_path: Path) -> None:
    served(tmp_path)
    rewritten_by_java(tmp_path, "consumerOffset.json", "0:4", "0:6")
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    broker = OneBroker(tmp_path, is_plain=True)
    assert (broker.store.reads.min_offset("T", 0), broker.store.reads.max_offset("T", 0)) == (6, 6)
    answer = broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"x")
    assert answer.ext_fields["queueOffset"] == "6"
    broker.close()


def test_a_store_of_a_group_is_not_taken_for_a_plain_one(tmp_path: Path) -> None:
    OneBroker(tmp_path).close()
    with pytest.raises(StoreConfigError, match="say enableDLegerCommitLog=true"):
        OneBroker(tmp_path, is_plain=True)


def test_a_plain_store_is_not_taken_for_that_of_a_group(tmp_path: Path) -> None:
    served(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    text = f"{GROUP_CONF}storePathRootDir={tmp_path}\nmapedFileSizeCommitLog=33554432\n"
    config = read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0]
    with pytest.raises(StoreConfigError, match="say enableDLegerCommitLog=false"):
        Broker(config)
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    del after[tmp_path / "lock"]
    assert after == before


def test_a_lost_log_of_a_store_of_ours_is_not_taken_for_a_new_one(tmp_path: Path) -> None:
    served(tmp_path)
    for path in (tmp_path / "commitlog").iterdir():
        path.unlink()
    with pytest.raises(DLedgerError, match="Restore the directory from a backup"):
        OneBroker(tmp_path, is_plain=True)


def test_damage_of_what_was_taken_over_is_said(tmp_path: Path) -> None:
    served(tmp_path)
    path = tmp_path / "pydledger" / "pydledger" / "imported-state"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreDamagedError, match="is damaged: restore it"):
        OneBroker(tmp_path, is_plain=True)
