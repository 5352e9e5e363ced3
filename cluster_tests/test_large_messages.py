"""Messages of up to 12 MiB, by a group of three whose leader is killed in between, and by a plain broker.

What is acknowledged is read back equal, no send elects anybody, and neither scrub nor validator finds anything.
"""

import asyncio
import signal
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest
from local_cluster import LocalCluster, port_block, wait_for
from our_commands import try_mq
from proved_load import PATIENCE_S
from test_plain_processes import Plain

from mqclient import Admin, LitePullConsumer, Message, Producer, ProducerConfig
from mqclient.admin_results import ScrubProgress
from verify.runner import LocalRunner
from verify.validation import validate

TOPIC = "Large"
CONF = {
    "maxMessageSize": "12582912",
    "mapedFileSizeCommitLog": "67108864",
    "pyDLedgerScrubBytesPerSecond": str(1 << 30),
}
PLAIN_CONF = {"brokerName": "large", "enableDLegerCommitLog": "false", **CONF}
SIZES_MIB = (4.0, 8.0, 8.5, 10.0, 11.9)


ROUNDS_MAX = 4
COUNTS = pytest.mark.parametrize("count", [2, pytest.param(20, marks=pytest.mark.long)])  # of each size
pytestmark = pytest.mark.slow


class Sent:
    """What was acknowledged: the SHA-256 of each body by its key. A send that is not fails the test."""

    def __init__(self, namesrv: str) -> None:
        self.digests: dict[str, bytes] = {}
        self._namesrv = namesrv
        self._random = Random(12)

    async def send(self, count: int) -> None:
        """So many of each size."""
        config = ProducerConfig(
            body_size_max=12 << 20, compress_over=12 << 20, send_timeout_s=30.0, retry_times=0
        )
        async with Producer(self._namesrv, "large", config=config) as producer:
            for size_mib in SIZES_MIB:
                for _ in range(count):
                    key = str(len(self.digests))
                    body = self._random.randbytes(int(size_mib * (1 << 20)))
                    await producer.send(Message(TOPIC, body, keys=key))
                    self.digests[key] = sha256(body).digest()

    def is_readable(self) -> bool:
        """Whether a broker that has just started is registered."""
        return try_mq("admin", "topicRoute", "-t", TOPIC, "-n", self._namesrv).returncode == 0

    async def read_back(self) -> None:
        found: dict[str, bytes] = {}
        async with LitePullConsumer(self._namesrv, "large") as consumer:
            queues = await consumer.fetch_message_queues(TOPIC)
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            async with asyncio.timeout(PATIENCE_S):
                while not self.digests.keys() <= found.keys():
                    for message in await consumer.poll(1.0):
                        found[message.keys] = sha256(message.body).digest()
        assert {key: found[key] for key in self.digests} == self.digests


@COUNTS
def test_large_messages_outlive_the_leader_and_are_sound_to_all_that_reads_them(
    cluster: LocalCluster, count: int
) -> None:
    cluster.up(conf=CONF)
    sent = Sent(cluster.namesrv)
    rounds = min(count, ROUNDS_MAX)
    for _ in range(rounds):
        leader = cluster.leader(PATIENCE_S)
        term = cluster.nodes()[leader]["term"]
        asyncio.run(sent.send(count // rounds))
        assert {node["term"] for node in cluster.nodes().values()} == {term}, "a send elects nobody"
        cluster.kill(leader)
        cluster.leader(PATIENCE_S)
        cluster.start_missing()
        cluster.wait_back(leader)
    asyncio.run(sent.read_back())
    cluster.level(PATIENCE_S)
    scrub(cluster)
    stores = [node["store_dir"] for node in cluster.nodes().values()]
    cluster.down()
    report = validate(stores, runner=LocalRunner())
    assert report.is_clean, [finding.as_dict() for finding in report.findings.shown]


def scrub(cluster: LocalCluster) -> None:
    """Whole rounds of all members find nothing."""
    for address in [node["listen"] for node in cluster.nodes().values()]:
        # One may be under way, and has read only what was there before the last messages came.
        rounds = asyncio.run(_scrub(cluster.namesrv, address)).rounds + 2
        wait_for(
            lambda rounds=rounds, address=address: (
                asyncio.run(_scrub(cluster.namesrv, address)).rounds >= rounds
            ),
            PATIENCE_S,
            f"scrub rounds of {address}",
        )
        assert asyncio.run(_scrub(cluster.namesrv, address)).faults == 0
    assert not any(node["faulty_ranges"] for node in cluster.nodes().values())


async def _scrub(namesrv: str, address: str) -> ScrubProgress:
    async with Admin(namesrv) as admin:
        return await admin.brokers.scrub(address)


@COUNTS
def test_a_plain_broker_keeps_large_messages(tmp_path: Path, count: int) -> None:
    with port_block() as base_port:
        plain = Plain(tmp_path / "plain", base_port, PLAIN_CONF)
        plain.name_server.start()
        try:
            plain.broker.start()
            sent = Sent(plain.namesrv)
            rounds = min(count, ROUNDS_MAX)
            for _ in range(rounds):
                asyncio.run(sent.send(count // rounds))
                plain.broker.end(signal.SIGKILL)
                plain.broker.start()
            wait_for(sent.is_readable, PATIENCE_S, "the broker is registered")
            asyncio.run(sent.read_back())
            assert plain.broker.end() == 0
        finally:
            plain.close()
        report = validate([plain.store], runner=LocalRunner())
        assert report.is_clean, [finding.as_dict() for finding in report.findings.shown]
