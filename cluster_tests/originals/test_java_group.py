"""RocketMQ's own group under faults, and the history that its client writes of it."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import port_block, wait_for
from originals.java_client import JavaClient, JavaProcess
from originals.java_group import RocketMqGroup
from originals.java_servers import BROKER_NAME

from faults.history import Assigned, Commit, Poll, Send, SendBegun, read_history, read_records
from faults.judge import judge

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.java]

TOPIC = "Recorded"
FAIL_OVER_S = 600


@pytest.fixture
def group(tmp_path: Path) -> Iterator[RocketMqGroup]:
    with port_block() as base_port:
        made = RocketMqGroup(tmp_path / "java", base_port)
        try:
            made.up()
            yield made
        finally:
            made.down()


def acknowledged(history: Path) -> int:
    return sum(isinstance(one, Send) and one.outcome == "ok" for one in read_records(history))


def delivered(history: Path) -> set[int]:
    """Sequences, of the one producer."""
    polls = (one for one in read_records(history) if isinstance(one, Poll))
    return {message.sequence for poll in polls for message in poll.messages}


def end(client: JavaProcess) -> None:
    client.close_input()
    client.wait_for("done", FAIL_OVER_S)


def test_a_killed_leader_is_replaced_and_the_java_clients_history_of_it_can_be_judged(
    group: RocketMqGroup, tmp_path: Path
) -> None:
    client = JavaClient("5.5.0", tmp_path / "client")
    sends, reads = tmp_path / "sends.jsonl", tmp_path / "reads.jsonl"
    before_ns = time.monotonic_ns()
    with (
        client.record_sends(group.namesrv, TOPIC, sends, "java-0") as producer,
        client.record_consumption(group.namesrv, TOPIC, reads, "java-readers", "reader-0") as consumer,
    ):
        producer.wait_for("started", FAIL_OVER_S)
        consumer.wait_for("started", FAIL_OVER_S)
        wait_for(lambda: acknowledged(sends) >= 200, FAIL_OVER_S, "sends under the first leader")
        leader = group.leader()
        assert leader is not None
        pid = group.pid(leader)
        group.kill(leader)
        assert group.pid(leader) is None
        wait_for(lambda: group.leader() not in (None, leader), FAIL_OVER_S, "another leader")
        group.start(leader)
        assert group.pid(leader) not in (None, pid)
        so_far = acknowledged(sends)
        wait_for(lambda: acknowledged(sends) >= so_far + 200, FAIL_OVER_S, "sends under the next leader")
        end(producer)
        sequences = {
            one.sequence for one in read_records(sends) if isinstance(one, Send) and one.outcome == "ok"
        }
        wait_for(lambda: sequences <= delivered(reads), FAIL_OVER_S, "what was acknowledged is delivered")
        end(consumer)
    after_ns = time.monotonic_ns()

    group.level(FAIL_OVER_S)
    told = {group.led_by(member) for member in group.members}
    assert (BROKER_NAME, group.leader()) in {(one[0], one[2]) for one in told if one is not None}

    records = list(read_history([sends, reads]))
    # One clock for the histories of Java and of ours.
    assert all(before_ns < one.at_ns < after_ns for one in records)
    kinds = Counter(map(type, records))
    assert kinds[SendBegun] == kinds[Send]
    assert kinds[Assigned]
    assert kinds[Commit]
    outcomes = Counter(one.outcome for one in records if isinstance(one, Send))
    assert outcomes["ok"] == len(sequences)
    # Nobody has noted the kill: the gap after it is without an excuse.
    assert set(judge(lambda: records).totals) <= {"availability"}
