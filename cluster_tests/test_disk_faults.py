"""Disks under real brokers hang, are slow, fail, fill up and lose pages while a client sends.

Each test sees by what the disk has counted that its fault happened (disk_faults.py). At the end of each, all that was
acknowledged is found, the replicas are equal byte by byte, and they validate.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from local_cluster import LocalCluster, port_block, wait_for
from preloaded.disk_faults import SOURCE, DiskFaults, faulty_disks
from preloaded.preload import built
from proved_load import BODY, TOPIC, Load, prove

from mq.cluster import Cluster
from mq.cluster_layout import ClusterLayout
from mqclient import Admin
from mqclient.consumer.consumer_config import ConsumeFromWhere, ConsumerConfig
from mqclient.sync import LitePullConsumer

pytestmark = pytest.mark.slow

GROUP = "disk_faults_reader"
DATA_FILE_SIZE = 256 << 10  # eighty messages
CONF = {
    "mappedFileSizeCommitLog": str(DATA_FILE_SIZE),
    "mappedFileSizeConsumeQueue": "10000",
    "pyDLedgerStalledSyncMs": "1000",
    "pyDLedgerScrubBytesPerSecond": str(64 << 20),
}
QUEUES = 4
# Inflation would be tens. A leader that gives way costs one, and one more if two candidates share the votes.
TERMS_MAX = 3
FROM_THE_FIRST = ConsumerConfig(consume_from=ConsumeFromWhere.FIRST)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(SOURCE, tmp_path_factory.mktemp("disk_faults") / "disk_faults.so")


@pytest.fixture(scope="module")
def faulty_cluster(
    tmp_path_factory: pytest.TempPathFactory, library: Path
) -> Iterator[tuple[LocalCluster, dict[str, DiskFaults]]]:
    """One for all tests here, which leave it as they found it: to start one takes longer than most of them."""
    with port_block() as base_port:
        cluster = LocalCluster(tmp_path_factory.mktemp("disk_faults") / "cluster", base_port)
        disks = faulty_disks(cluster, library)
        with starting(cluster):
            Cluster.up(ClusterLayout(dir=str(cluster.directory.resolve()), base_port=base_port, conf=CONF))
        yield cluster, disks
        cluster.down()


@pytest.fixture
def cluster(faulty_cluster: tuple[LocalCluster, dict[str, DiskFaults]]) -> LocalCluster:
    """That serves, each member of it."""
    cluster, _ = faulty_cluster
    for name, node in cluster.nodes().items():
        if node["pid"] is None:  # an earlier test has failed
            start(cluster, name)
    cluster.leader(60)
    cluster.level(60)
    return cluster


@contextmanager
def starting(cluster: LocalCluster) -> Iterator[None]:
    """What is started within are children of this process, which is told their exit statuses."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in cluster.environment.items():
            patch.setenv(key, value)
        patch.setattr("mq.cluster.LISTEN_TIMEOUT_S", 60.0)  # nobody waits for a prompt here
        yield


def start(cluster: LocalCluster, name: str) -> int:
    """The process id of the member."""
    with starting(cluster):
        return Cluster.load(cluster.directory.resolve()).start(name).pid


@pytest.fixture
def disks(faulty_cluster: tuple[LocalCluster, dict[str, DiskFaults]]) -> Iterator[dict[str, DiskFaults]]:
    _, disks = faulty_cluster
    yield disks
    for disk in disks.values():
        disk.lift()


@pytest.fixture
def load(cluster: LocalCluster, tmp_path: Path) -> Load:
    return Load(cluster, tmp_path / "history.jsonl")


def wait_felt(disk: DiskFaults, kind: str) -> None:
    wait_for(lambda: disk.counts()[kind], 60, f"a call with {kind}")


def next_leader(cluster: LocalCluster, former: str) -> str:
    """Waits until another one serves."""

    def another() -> str | None:
        leader = cluster.leader()
        return leader if leader != former else None

    leader: str = wait_for(another, 60, f"another leader than {former}")
    return leader


def a_follower(cluster: LocalCluster) -> str:
    leader = cluster.leader()
    return next(name for name in cluster.nodes() if name != leader)


def pids(cluster: LocalCluster) -> dict[str, int]:
    return {name: node["pid"] for name, node in cluster.nodes().items()}


def term(cluster: LocalCluster) -> int:
    return max(node["term"] or 0 for node in cluster.nodes().values())


@contextmanager
def outlived(cluster: LocalCluster, load: Load) -> Iterator[None]:
    """What happens within fails no send, ends no process and costs few terms; then all is proved."""
    began_with, began_in = pids(cluster), term(cluster)
    with load:
        yield
    assert load.failed == []
    cluster.level(60)
    assert pids(cluster) == began_with
    assert term(cluster) <= began_in + TERMS_MAX
    prove(cluster, load)


@pytest.mark.parametrize("hangs", ["syncs", "writes"])
def test_sends_go_on_under_another_leader_while_the_leaders_disk_hangs(
    cluster: LocalCluster, disks: dict[str, DiskFaults], load: Load, hangs: str
) -> None:
    began_with = pids(cluster)
    with load:
        leader = cluster.leader()
        if hangs == "syncs":
            disks[leader].hang_syncs()
            wait_felt(disks[leader], "sync_hung")
        else:
            disks[leader].hang_writes()
            wait_felt(disks[leader], "write_hung")
        next_leader(cluster, leader)
        load.goes_on()
        disks[leader].lift()
        load.goes_on()
    assert load.failed == []
    cluster.level(60)
    assert pids(cluster) == began_with
    prove(cluster, load)


@pytest.mark.parametrize("fault", ["hangs", "is_slow"])
def test_sends_go_on_while_a_followers_disk(
    cluster: LocalCluster, disks: dict[str, DiskFaults], load: Load, fault: str
) -> None:
    with outlived(cluster, load):
        follower = a_follower(cluster)
        if fault == "hangs":
            disks[follower].hang_syncs()
            wait_felt(disks[follower], "sync_hung")
        else:
            disks[follower].delay_syncs(500)
            wait_felt(disks[follower], "sync_delayed")
        load.goes_on(200)
        disks[follower].lift()
        load.goes_on()


@pytest.mark.parametrize(
    ("role", "fault"),
    [
        ("leader", "sync_failed"),
        ("follower", "write_failed"),
        pytest.param("follower", "sync_failed", marks=pytest.mark.long),
        pytest.param("leader", "write_failed", marks=pytest.mark.long),
    ],
)
def test_a_member_whose_disk_fails_ends_and_says_why_and_the_others_go_on(
    cluster: LocalCluster,
    disks: dict[str, DiskFaults],
    load: Load,
    role: str,
    fault: str,
) -> None:
    with load:
        name = cluster.leader() if role == "leader" else a_follower(cluster)
        pid = pids(cluster)[name]
        if fault == "sync_failed":
            disks[name].fail_syncs()
        else:
            disks[name].fail_writes()
        _, status = wait_for(
            lambda: ended if any(ended := os.waitpid(pid, os.WNOHANG)) else None, 60, f"the end of {name}"
        )
        assert os.waitstatus_to_exitcode(status) == 1
        assert disks[name].counts()[fault]
        said = cluster.log_file(name).read_text().splitlines()
        last_words = [line for line in said if f" CRITICAL dledger.replica [{name}]" in line]
        assert "stopping reason=" in last_words[-1]
        assert "Input/output error" in last_words[-1]
        load.goes_on()
        disks[name].lift()
        start(cluster, name)
        load.goes_on()
    assert load.failed == []
    prove(cluster, load)


def test_a_leader_without_space_gives_way_and_comes_back_without_a_restart(
    cluster: LocalCluster, disks: dict[str, DiskFaults], load: Load
) -> None:
    with outlived(cluster, load):
        leader = cluster.leader()
        disks[leader].no_space()
        next_leader(cluster, leader)
        assert disks[leader].counts()["no_space"]
        load.goes_on(200)
        disks[leader].lift()
        load.goes_on()


def test_sends_go_on_while_a_follower_has_no_space_and_it_comes_back_without_a_restart(
    cluster: LocalCluster, disks: dict[str, DiskFaults], load: Load
) -> None:
    with outlived(cluster, load):
        follower = a_follower(cluster)
        disks[follower].no_space(after_bytes=100_000)
        wait_felt(disks[follower], "no_space")
        load.goes_on(200)  # two data files
        disks[follower].lift()
        load.goes_on()


def test_while_no_disk_has_space_sends_are_refused_reads_go_on_and_nobody_campaigns(
    cluster: LocalCluster, disks: dict[str, DiskFaults], tmp_path: Path
) -> None:
    began_with = pids(cluster)
    reader = LitePullConsumer(cluster.namesrv, GROUP, {TOPIC: "*"}, config=FROM_THE_FIRST)
    with Load(cluster, tmp_path / "history.jsonl", timeout_s=2.0) as load, reader:
        wait_for(lambda: reader.poll(1), 30, "the first messages")
        leader, began_in = cluster.leader(), term(cluster)
        for disk in disks.values():
            disk.no_space()
        for disk in disks.values():
            wait_felt(disk, "no_space")

        def is_named() -> bool:
            return any(
                f"on the disk of {leader}" in (cause := str(error)) and "no space" in cause
                for error in load.failed
            )

        wait_for(is_named, 60, "a refusal that names the cause")
        read_again(reader, load)
        load.is_refused()
        assert (cluster.leader(), term(cluster)) == (leader, began_in)
        for disk in disks.values():
            disk.lift()
        load.goes_on()
    cluster.level(60)
    assert pids(cluster) == began_with
    assert term(cluster) <= began_in + TERMS_MAX
    prove(cluster, load)


@pytest.mark.parametrize("found_by", ["the_scrub", "a_reader"])
def test_pages_of_an_old_file_that_cannot_be_read_are_named_and_repaired(
    cluster: LocalCluster, disks: dict[str, DiskFaults], load: Load, found_by: str
) -> None:
    with load:
        load.goes_on(2 * DATA_FILE_SIZE // len(BODY))
    name = a_follower(cluster)
    cluster.stop(name)  # what was appended since its start lies in memory
    start(cluster, name)
    cluster.level(60)
    began_with, node = pids(cluster), cluster.nodes()[name]
    file = Path(node["store_dir"]) / f"dledger-{name}" / "data" / f"{0:020d}"
    disks[name].fail_reads(file, 40_960, 40_960)
    if found_by == "a_reader":
        asyncio.run(lead(cluster, name))
        reader = LitePullConsumer(cluster.namesrv, GROUP, {TOPIC: "*"}, config=FROM_THE_FIRST)
        with reader:
            wait_for(lambda: len(reader.assignment) == QUEUES, 30, "all queues")
            read_again(reader, load)
    else:
        asyncio.run(scrub(cluster.namesrv, node["listen"]))
    wait_felt(disks[name], "read_failed")
    log_file = cluster.log_file(name)
    wait_for(lambda: "repaired entries" in log_file.read_text(), 60, "the repair")
    wait_for(lambda: not cluster.nodes()[name]["faulty_ranges"], 60, "no damage left")
    assert "damage found entries" in log_file.read_text()
    assert disks[name].counts()["page_rewritten"] == 10
    assert pids(cluster) == began_with
    disks[name].lift()
    prove(cluster, load)


async def lead(cluster: LocalCluster, name: str) -> None:
    leader = cluster.leader()
    async with Admin(cluster.namesrv) as admin:
        await admin.brokers.transfer_leadership(cluster.nodes()[leader]["listen"], name)
    assert next_leader(cluster, leader) == name


async def scrub(namesrv: str, address: str) -> None:
    async with Admin(namesrv) as admin:
        await admin.brokers.scrub(address)


def read_again(reader: LitePullConsumer, load: Load) -> None:
    """All there is, from the first message on, until everything acknowledged by now was seen."""
    missing = set(load.places)
    for queue in reader.assignment:
        reader.seek_to_begin(queue)

    def is_read() -> bool:
        missing.difference_update((message.queue_id, message.queue_offset) for message in reader.poll(1))
        return not missing

    wait_for(is_read, 60, "all that was acknowledged")
