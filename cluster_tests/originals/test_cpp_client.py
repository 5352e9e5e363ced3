"""RocketMQ's C++ client at our group, and with --long at RocketMQ's own broker: it sends, is handed messages, has them
again, filters by tag and reads in order.
"""

from pathlib import Path

import pytest
from local_cluster import wait_for
from originals import cpp_client
from originals.cpp_client import CppClient
from originals.java_client import JavaProcess

pytestmark = pytest.mark.slow

COUNT = 40


@pytest.fixture
def cpp(tmp_path: Path) -> CppClient:
    reason = cpp_client.why_not()
    if reason:
        pytest.skip(reason)
    return CppClient(tmp_path / "cpp")


def keys_of(process: JavaProcess, event: str) -> list[str]:
    return [e["key"] for e in process.events if e["event"] == event]


def sent(process: JavaProcess) -> set[str]:
    with process:
        process.wait_for("done")
    keys = set(keys_of(process, "ok"))
    # What a leader that steps down refuses is sent again by nobody here.
    assert len(keys) > len(keys_of(process, "failed")), process.stderr()
    return keys


def test_what_it_sends_is_pushed_to_it_by_tag(cpp: CppClient, shared_namesrv: str) -> None:
    topic = "CppTags"
    sent_keys = sent(cpp.send(shared_namesrv, topic, COUNT, "k", "TagA", "TagB"))
    wanted = {key for key in sent_keys if int(key[1:]) % 2 == 0}
    with cpp.push(shared_namesrv, topic, "cpp_tags", "TagA") as consumer:
        wait_for(lambda: wanted <= set(keys_of(consumer, "received")), 60, "all of one tag")
        later = sent(cpp.send(shared_namesrv, topic, COUNT, "l", "TagA", "TagB"))
        wanted |= {key for key in later if int(key[1:]) % 2 == 0}
        wait_for(
            lambda: wanted <= set(keys_of(consumer, "received")), 60, "all that came while it was connected"
        )
        received = [e for e in consumer.events if e["event"] == "received"]
        assert {e["tag"] for e in received} == {"TagA"}
        assert all(e["body"] == e["key"] for e in received)
        consumer.close_input()
        consumer.wait_for("done")


def test_what_it_could_not_consume_comes_again(cpp: CppClient, shared_namesrv: str) -> None:
    """One message to a queue: behind one that fails the client gives back all that it holds of its queue."""
    topic = "CppRetries"
    keys = sent(cpp.send(shared_namesrv, topic, 4, "k", "TagA"))
    with cpp.push(shared_namesrv, topic, "cpp_retries", failures=1) as consumer:
        wait_for(lambda: keys <= set(keys_of(consumer, "received")), 90, "all at the second try")
        assert all(e["times"] >= 1 for e in consumer.events if e["event"] == "received")
        assert keys <= set(keys_of(consumer, "failed"))


def test_what_it_sends_in_order_it_is_handed_in_order(cpp: CppClient, shared_namesrv: str) -> None:
    topic = "CppOrder"
    keys = sent(cpp.send_orderly(shared_namesrv, topic, 24, 3))
    with cpp.push(shared_namesrv, topic, "cpp_order", failures=1, orderly=True) as consumer:
        wait_for(lambda: keys <= set(keys_of(consumer, "received")), 90, "all, each after a failure")
        received = [(e["key"], e["queue"]) for e in consumer.events if e["event"] == "received"]
    for shard in ("0", "1", "2"):
        of_shard = [(key, queue) for key, queue in received if key.startswith(shard)]
        assert len({queue for _, queue in of_shard}) == 1
        # A rebalance may bring a message a second time, but never out of order.
        first = list(dict.fromkeys(key for key, _ in of_shard))
        assert first == sorted(first)
