"""Bits that flip in the files of real members are found, named and repaired, and nothing acknowledged is lost.

Members scrub all the time here, so that a test need not wait a minute for the first round. Nobody sends or reads, and
nobody does anything, from a damaged member's start until all in it is sound again.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from damaged_files import MemberFiles, StoredEntry
from local_cluster import LocalCluster, wait_for
from our_commands import mq, outcomes, running

import mqclient

pytestmark = [pytest.mark.slow]

TOPIC = "Damaged"
CONF = {
    "mappedFileSizeCommitLog": str(1 << 18),
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "flushConsumeQueueThoroughInterval": "1000",
    "flushConsumerOffsetInterval": "1000",
    "pyDLedgerScrubPauseMs": "200",
    "pyDLedgerScrubBytesPerSecond": str(1 << 28),
}
SLOTS_DAMAGED = {"quorum-state": 0, "synced-mark": 1, "begin-mark": 0, "key-index-mark": 0}
ONLY_WHEN_TOLD = {"pyDLedgerScrubBytesPerSecond": "0"}


class Sent:
    """What was sent, and what became of it, over several calls."""

    def __init__(self, cluster: LocalCluster, directory: Path) -> None:
        self._cluster = cluster
        self._directory = directory
        self.history = directory / "history.jsonl"
        self.count = 0

    def lines(self, count: int) -> str:
        numbers = range(self.count, self.count + count)
        return "".join(f"key-{number}\t{'x' * 500}\n" for number in numbers)

    def produce(self, count: int) -> None:
        """All are acknowledged when it returns."""
        part = self._directory / "part.jsonl"
        command = [sys.executable, "-m", "mq", "produce", *self.options(part)]
        subprocess.run(
            command, input=self.lines(count), text=True, check=True, timeout=120, capture_output=True
        )
        self.take(part, count)

    def options(self, history: Path) -> tuple[str, ...]:
        return (
            "-n", self._cluster.namesrv, "--topic", TOPIC, "--keys-from", "column:1", "--history", str(history)
        )  # fmt: skip

    def take(self, part: Path, count: int) -> None:
        """Adds what a command has noted of `count` lines."""
        with self.history.open("a") as history:
            for noted in outcomes(part):
                history.write(json.dumps(noted | {"line": noted["line"] + self.count}) + "\n")
        self.count += count

    @property
    def acknowledged(self) -> int:
        return sum(noted["outcome"] == "ok" for noted in outcomes(self.history))


@pytest.fixture
def sent(cluster: LocalCluster, tmp_path: Path) -> Sent:
    return Sent(cluster, tmp_path)


def files_of(cluster: LocalCluster, name: str) -> MemberFiles:
    return MemberFiles(cluster.directory / name / "store")


def log_of(cluster: LocalCluster, name: str) -> str:
    return (cluster.directory / name / "broker.log").read_text()


def assert_named(told: str, texts: Iterable[str]) -> None:
    missing = [text for text in texts if text not in told]
    assert not missing, f"{missing}\n{told}"


def started_and_sound(cluster: LocalCluster, name: str) -> str:
    """Starts the member and waits until it has nothing damaged, and has read all it has once more without a finding.
    What it has logged since.
    """

    def is_sound() -> bool:
        node = cluster.nodes()[name]
        last_round = (node.get("scrub") or {}).get("last_round")
        return bool(last_round and not last_round["faults"] and not node["faulty_ranges"])

    before = len(log_of(cluster, name))
    cluster.start(name)
    wait_for(is_sound, 40, f"{name} sound")
    return log_of(cluster, name)[before:]


def assert_all_is_there(cluster: LocalCluster, sent: Sent) -> None:
    """On each member, byte by byte; and each acknowledged send in all of them."""
    cluster.level()
    names = list(cluster.nodes())
    first, *others = (files_of(cluster, name).data() for name in names)
    for other in others:
        assert list(other) == list(first)
        assert [name for name in first if first[name] != other[name]] == []
    stores = [str(cluster.directory / name / "store") for name in names]
    report = json.loads(mq("validate", *stores, "--history", str(sent.history), "--json", "-", "--no-spark"))
    assert report["acknowledged"] == report["acknowledged_found"] == sent.acknowledged


def assert_all_is_received(cluster: LocalCluster, sent: Sent) -> None:
    """Each line sent, by a group that begins with the first."""
    missing = asyncio.run(missing_of(cluster.namesrv, {f"key-{number}" for number in range(sent.count)}))
    assert not missing, f"{len(missing)} were not received, first {sorted(missing)[:5]}"


async def missing_of(namesrv: str, keys: set[str]) -> set[str]:
    """Those that have not come when nothing came for 10 s."""
    config = mqclient.ConsumerConfig(consume_from=mqclient.ConsumeFromWhere.FIRST)
    async with mqclient.PushConsumer(namesrv, "readers", {TOPIC: "*"}, config=config) as consumer:
        while keys:
            try:
                async with asyncio.timeout(10):
                    batch = await consumer.take()
            except TimeoutError:
                break
            assert batch is not None, "the consumer is not closed"
            keys -= {message.properties["KEYS"] for message in batch.messages}
            batch.done()
    return keys


def repaired(*entries: StoredEntry) -> list[str]:
    """What a member says of each of them."""
    headers = [entry.header for entry in entries]
    return [f"repaired entries {header.index}..{header.index} at pos {header.pos}" for header in headers]


def test_a_flipped_bit_in_each_kind_of_file_is_found_and_repaired_and_the_member_leads_with_all_of_it(
    cluster: LocalCluster, sent: Sent
) -> None:
    cluster.up(conf=CONF)
    sent.produce(2500)
    cluster.level()
    leader = cluster.leader()
    name = next(name for name in cluster.nodes() if name != leader)
    cluster.stop(name)
    files = files_of(cluster, name)
    data = files.data_files
    in_body, in_header = (files.entries(path)[30] for path in data[3:5])
    first_of_file = files.entries(data[2])[0]
    unit = files.entries(data[5])[20].header.index
    blank_pos = files.blank_pos(data[0])
    checkpoint, index_file = files.checkpoints()[-1], files.index_file()
    files.flip_in_body(in_body)
    files.flip_in_header(in_header)
    files.flip_in_body(first_of_file)
    files.flip_in_blank(data[0])
    files.flip_in_unit(unit)
    for own, slot in SLOTS_DAMAGED.items():
        files.flip_in_slot(own, slot)
    files.flip_in_checkpoint(checkpoint)
    files.flip_in_index_file(index_file)
    told = started_and_sound(cluster, name)
    assert_named(
        told,
        [
            *repaired(in_body, in_header, first_of_file),
            f"blank rebuilt pos={blank_pos}",
            *(f"path={files.own(own)} slot={slot}" for own, slot in SLOTS_DAMAGED.items()),
            f"path={checkpoint}",
            f"path={index_file} fault: its header",
        ],
    )
    rebuilt = re.findall(r"index units rebuilt first=(\d+) last=(\d+)", told)
    assert any(int(first) <= unit <= int(last) for first, last in rebuilt), told
    assert_all_is_there(cluster, sent)

    # By itself, for without the newest checkpoint all queues are built anew, whatever is in them.
    cluster.stop(name)
    queue = files.consume_queue(TOPIC)
    files.flip_in_tags_code(queue, 30)
    told = started_and_sound(cluster, name)
    assert_named(told, [f"units rebuilt from the log directory={queue.parent} first=30 last=30"])

    # Once more, with the file that now says what was damaged. Then it leads: what it gives out is its own.
    cluster.stop(name)
    in_last = files.entries(files.data_files[-1])[-1]
    files.flip_in_body(in_last)
    files.flip_in_slot("faulty-ranges", 1)
    for slot in (0, 1):
        files.flip_in_slot("key-index-mark", slot)
    files.flip_in_consume_queue(files.consume_queue(TOPIC))
    topics = files.config("topics.json")
    files.flip_in_config(topics)
    assert_named(
        started_and_sound(cluster, name),
        [
            *repaired(in_last),
            f"path={files.own('faulty-ranges')} slot=1",
            "mark of the IndexFiles is lost",
            "ConsumeQueues are damaged, all are built anew",
        ],
    )
    mq("admin", "transferLeader", "-n", cluster.namesrv, "-c", "DefaultCluster", "-t", name)
    wait_for(lambda: cluster.leader() == name, 20, f"{name} to lead")
    assert_all_is_received(cluster, sent)
    sent.produce(50)
    wait_for(lambda: TOPIC in topics_in(topics), 20, f"{topics} to be written anew")
    assert_all_is_there(cluster, sent)


def topics_in(path: Path) -> set[str]:
    """None of a file that cannot be read."""
    try:
        return set(json.loads(path.read_bytes())["topicConfigTable"])
    except ValueError:
        return set()


def test_a_damaged_member_without_which_there_is_no_majority_takes_part_and_leads_only_repaired(
    cluster: LocalCluster, sent: Sent
) -> None:
    cluster.up(conf=CONF)
    sent.produce(1000)
    cluster.level()
    leader = cluster.leader()
    name, away = (name for name in cluster.nodes() if name != leader)
    cluster.kill(away)
    cluster.stop(name)
    files = files_of(cluster, name)
    damaged = files.entries(files.data_files[1])[0]
    files.flip_in_body(damaged)
    wait_for(lambda: cluster.nodes()[leader]["role"] != "LEADER", 20, f"{leader} to miss its majority")
    told = started_and_sound(cluster, name)
    assert_named(told, ["damaged entries are kept until they are repaired", *repaired(damaged)])
    cluster.leader()
    assert "[LEADER]" not in told[: told.index("repaired entries")]
    sent.produce(50)
    cluster.start(away)
    assert_all_is_there(cluster, sent)
    assert_all_is_received(cluster, sent)


def test_a_flipped_bit_in_an_old_file_of_a_leader_is_found_by_the_scrub_and_repaired_while_it_serves(
    cluster: LocalCluster, sent: Sent, tmp_path: Path
) -> None:
    cluster.up(conf=CONF | ONLY_WHEN_TOLD)
    sent.produce(1000)
    cluster.level()
    leader = cluster.leader()
    before = cluster.nodes()[leader]
    files = files_of(cluster, leader)
    damaged = files.entries(files.data_files[1])[40]
    lines, part = tmp_path / "lines", tmp_path / "part"
    lines.write_text(sent.lines(600))
    with running(
        tmp_path / "told", "produce", "--file", str(lines), "--rate", "200", *sent.options(part)
    ) as producer:
        wait_for(lambda: len(outcomes(part)) > 50, 30, "the first sends")
        files.flip_in_body(damaged)
        mq("admin", "scrub", "-n", cluster.namesrv, "-b", before["listen"])
        wait_for(lambda: repaired(damaged)[0] in log_of(cluster, leader), 30, "the repair")
        assert producer.wait(timeout=60) == 0
    sent.take(part, 600)
    where = f"file=log where=entries {damaged.header.index}..{damaged.header.index} pos={damaged.header.pos}"
    assert_named(log_of(cluster, leader), [f"scrub found damage {where}"])
    after = cluster.nodes()[leader]
    assert (after["role"], after["term"], after["faulty_ranges"]) == ("LEADER", before["term"], [])
    assert sent.acknowledged == 1600
    assert_all_is_there(cluster, sent)
    assert_all_is_received(cluster, sent)


def test_data_files_in_the_place_of_which_older_copies_came_back_are_repaired(
    cluster: LocalCluster, sent: Sent
) -> None:
    cluster.up(conf=CONF)
    leader = cluster.leader()
    name = next(name for name in cluster.nodes() if name != leader)
    files = files_of(cluster, name)
    older: dict[Path, bytes] = {}
    for count in (400, 1000, 100):
        sent.produce(count)
        cluster.level()
        path = files.data_files[-1]
        older[path] = path.read_bytes()
    sent.produce(100)
    cluster.level()
    cluster.stop(name)
    stale = [path for path in older if path.read_bytes() != older[path]]
    assert len(stale) >= 2
    firsts = []
    for path in stale:
        here = files.entries(path)
        path.write_bytes(older[path])
        firsts.append(here[len(files.entries(path))].header)
    assert_named(
        started_and_sound(cluster, name), [f"repaired entries {header.index}.." for header in firsts]
    )
    assert_all_is_there(cluster, sent)


def test_data_files_that_are_gone_or_cut_short_come_back_byte_by_byte(
    cluster: LocalCluster, sent: Sent
) -> None:
    cluster.up(conf=CONF)
    sent.produce(1500)
    cluster.level()
    leader = cluster.leader()
    for name in (leader, next(name for name in cluster.nodes() if name != leader)):
        cluster.stop(name)
        first, second, *_, last = files_of(cluster, name).data_files
        first.unlink()
        with second.open("r+b") as file:
            file.truncate(10_000)
        last.unlink()
        told = started_and_sound(cluster, name)
        assert_named(told, [f"for peers to repair path={path}" for path in (first, second, last)])
        sent.produce(10)
        assert_all_is_there(cluster, sent)
    assert_all_is_received(cluster, sent)


def test_a_damaged_tail_that_only_one_living_member_has_is_left_to_the_quorum(
    cluster: LocalCluster, sent: Sent, tmp_path: Path
) -> None:
    cluster.up(conf=CONF)
    sent.produce(300)
    cluster.level()
    leader = cluster.leader()
    name, other = (name for name in cluster.nodes() if name != leader)
    files = files_of(cluster, name)
    mark = files.own("synced-mark")
    cluster.stop(other)
    lines, part = tmp_path / "lines", tmp_path / "part"
    lines.write_text(sent.lines(4000))
    with running(tmp_path / "told", "produce", "--file", str(lines), "--rate", "500", *sent.options(part)):
        wait_for(lambda: len(outcomes(part)) > 100, 30, "the first sends")
        # What the leader appends now is on its way to this one, and acknowledged by nobody.
        cluster.pause(name)
        paused_mark = mark.read_bytes()
        wait_for(lambda: has_pending(cluster.nodes()[leader], 10), 20, "entries that nobody acknowledged")
        told = cluster.nodes()[leader]
        cluster.kill(leader)
    cluster.resume(name)
    wait_for(lambda: cluster.nodes()[name].get("ledger_end", -1) > told["committed"] + 3, 20, "a tail")
    cluster.kill(name)
    sent.take(part, 4000)
    # The mark may lag so far: it moves once in a second.
    mark.write_bytes(paused_mark)
    above = max(files.synced_mark().index, told["committed"])
    tail = [entry for entry in files.entries(files.data_files[-1]) if entry.header.index > above]
    files.flip_in_body(tail[len(tail) // 2])

    before = len(log_of(cluster, name))
    cluster.start(other)
    cluster.start(name)
    obstacle = wait_for(
        lambda: cluster.nodes()[other].get("election_obstacle"), 20, "a reason why nobody leads"
    )
    assert name in obstacle
    assert cluster.nodes()[name]["doubted"]
    cluster.start(leader)
    assert cluster.leader() == leader
    wait_for(lambda: not cluster.nodes()[name]["doubted"], 20, "the end of its doubt")
    assert_named(log_of(cluster, name)[before:], ["doubted=True"])
    assert_all_is_there(cluster, sent)


def has_pending(node: dict[str, Any], count: int) -> bool:
    return bool(node["ledger_end"] is not None and node["ledger_end"] >= node["committed"] + count)
