"""Members of a real group that lose their disk or their vote, and one that another takes the place of, under load."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from local_cluster import LocalCluster, port_block, wait_for
from our_commands import mq, outcomes, running, try_mq

pytestmark = [pytest.mark.slow]

TOPIC = "Members"


def produce(cluster: LocalCluster, count: int) -> None:
    lines = "".join(f"{number}\n" for number in range(count))
    command = [sys.executable, "-m", "mq", "produce", "-n", cluster.namesrv, "--topic", TOPIC]
    subprocess.run(command, input=lines, text=True, check=True, timeout=120, capture_output=True)


def members(cluster: LocalCluster) -> dict[str, dict[str, Any]]:
    """As the leader knows them."""
    listed = mq("admin", "memberList", "-n", cluster.namesrv, "-c", "DefaultCluster", "--json")
    return {member["id"]: member for member in json.loads(listed)}


def leader_of_all(cluster: LocalCluster) -> str:
    """Waits for one that serves. It may be a member that the cluster does not know."""

    def found() -> str | None:
        done = try_mq("admin", "memberList", "-n", cluster.namesrv, "-c", "DefaultCluster", "--json")
        listed = json.loads(done.stdout) if done.returncode == 0 else []
        return next((member["id"] for member in listed if member["leads"]), None)

    return str(wait_for(found, 20, "a leader"))


def change(cluster: LocalCluster, *arguments: str) -> None:
    mq("admin", *arguments, "-n", cluster.namesrv, "-c", "DefaultCluster")


def are_voters(cluster: LocalCluster, *ids: str) -> bool:
    listed = members(cluster)
    return sorted(listed) == sorted(ids) and {member["role"] for member in listed.values()} == {"voter"}


@pytest.mark.parametrize("lost", ["disk", "vote", pytest.param("vote_is_zeroed", marks=pytest.mark.long)])
def test_a_member_that_lost_its_disk_or_its_vote_gets_its_seat_back_while_nothing_is_sent(
    cluster: LocalCluster, lost: str
) -> None:
    cluster.up()
    produce(cluster, 200)
    cluster.level()
    leader = cluster.leader()
    name, other = (name for name in cluster.nodes() if name != leader)
    disk = members(cluster)[name]["disk"]
    store = Path(cluster.nodes()[name]["store_dir"])
    wait_for(lambda: list(store.glob("dledger-*/pydledger/synced-mark")), 20, "a synced mark")
    cluster.kill(name)
    if lost == "disk":
        shutil.rmtree(store)
    else:
        (state,) = store.glob("dledger-*/pydledger/quorum-state")
        state.unlink() if lost == "vote" else state.write_bytes(bytes(state.stat().st_size))
    cluster.start(name)
    wait_for(
        lambda: are_voters(cluster, "n0", "n1", "n2") and members(cluster)[name]["disk"] != disk,
        40,
        "a seat for the new disk",
    )
    cluster.level()
    cluster.kill(other)
    produce(cluster, 50)


@contextmanager
def broker_beside(cluster: LocalCluster, directory: Path, member_id: str, base_port: int) -> Iterator[str]:
    """A member that the confs of the others do not name. Gives the address of its port for peers."""
    lines = (cluster.directory / "n0" / "broker.conf").read_text().splitlines()
    conf = dict(line.split("=", 1) for line in lines)
    address = f"127.0.0.1:{base_port + 1}"
    conf |= {
        "listenPort": str(base_port + 10),
        "storePathRootDir": str(directory / "store"),
        "dLegerSelfId": member_id,
        "dLegerPeers": f"{conf['dLegerPeers']};{member_id}-{address}",
        "pyDLedgerHttpPort": str(base_port + 2),
    }
    directory.mkdir()
    path = directory / "broker.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in conf.items()))
    with (directory / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mq.server_entry", "broker", "-c", str(path)], stdout=log, stderr=log
        )
        try:
            yield address
        finally:
            process.terminate()
            process.wait()


def test_a_member_is_replaced_by_a_new_one_under_load_with_a_leader_killed_in_the_middle(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    cluster.up()
    produce(cluster, 500)
    old_leader = cluster.leader()
    lines, history = tmp_path / "lines", tmp_path / "history.jsonl"
    lines.write_text("".join(f"line {number}\n" for number in range(4000)))
    options = ["--file", str(lines), "--keys-from", "line", "--rate", "200", "--history", str(history)]
    with (
        port_block() as base_port,
        running(
            tmp_path / "sent", "produce", "-n", cluster.namesrv, "--topic", TOPIC, *options, "--json"
        ) as producer,
    ):
        wait_for(lambda: len(outcomes(history)) > 200, 30, "the first sends")
        with broker_beside(cluster, tmp_path / "n3", "n3", base_port) as address:
            change(cluster, "addMember", "-i", "n3", "-a", address)
            cluster.kill(old_leader)
            leader = leader_of_all(cluster)
            wait_for(
                lambda: are_voters(cluster, "n0", "n1", "n2", "n3"), 60, "a voter more, with a new leader"
            )
            change(cluster, "removeMember", "-i", old_leader)
            rest = sorted({"n0", "n1", "n2", "n3"} - {old_leader})
            wait_for(lambda: are_voters(cluster, *rest), 20, "three voters")
            # Two of three are left, and the new one is needed.
            third, *others = (name for name in rest if name not in (leader, "n3"))
            cluster.kill(third)
            kept = leader if leader != "n3" else others[0]
            before = len(outcomes(history))
            wait_for(lambda: len(outcomes(history)) > before + 200, 40, "sends that the new member holds")
            producer.wait(timeout=120)
            end = members(cluster)[leader]["acknowledged"]
            wait_for(
                lambda: all(members(cluster)[name]["acknowledged"] >= end for name in (kept, "n3")),
                20,
                "both at level",
            )
            stores = [cluster.nodes()[kept]["store_dir"], str(tmp_path / "n3" / "store")]
            report = json.loads(
                mq("validate", *stores, "--history", str(history), "--json", "-", "--no-spark")
            )
    assert report["acknowledged"] == report["acknowledged_found"] > 3500
