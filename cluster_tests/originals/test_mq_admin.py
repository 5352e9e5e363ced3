"""`mq admin` against a group of three, and where Java is there, with the same results as its mqadmin."""

import json
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from local_cluster import ROOT, LocalCluster, wait_for
from originals.java_mqadmin import JavaMqAdmin

from mq.admin.__main__ import COMMANDS, main
from remoting.bodies.bodies import TopicRouteData

pytestmark = pytest.mark.slow
TOPIC, GROUP, NAME = "Admin", "admin_group", "RaftNode00"
CLUSTER = ("-c", "DefaultCluster")


class MqAdmin:
    """What a command shows as JSON. Repeated where it fails: a leader may just be made.

    In this process: a Python that starts takes longer than nearly all of them.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self.used: set[str] = set()
        self._cluster = cluster

    def __call__(self, *arguments: str) -> Any:
        self.used.add(arguments[0])
        return wait_for(lambda: self._run(*arguments), 30, " ".join(arguments))[0]

    def _run(self, *arguments: str) -> tuple[Any] | None:
        shown, told = StringIO(), StringIO()
        try:
            with redirect_stdout(shown), redirect_stderr(told):
                main([*arguments, "-n", self._cluster.namesrv, "--json"])
        except SystemExit:
            assert told.getvalue().count("\n") == 1, told.getvalue()
            return None
        return (json.loads(shown.getvalue()),)


@pytest.fixture
def admin(cluster: LocalCluster) -> MqAdmin:
    """Of a cluster that is up."""
    cluster.up(conf={"flushConsumeQueueThoroughInterval": "1000"})  # units are waited for
    return MqAdmin(cluster)


def leader_address(cluster: LocalCluster) -> str:
    return str(cluster.nodes()[cluster.leader()]["listen"])


def test_every_command_does_its_work_on_a_group_of_three(
    cluster: LocalCluster, admin: MqAdmin, tmp_path: Path
) -> None:
    leader_id, leader = cluster.leader(), leader_address(cluster)
    files = cluster.directory / cluster.leader() / "store" / "consumequeue"
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text('[{"topicName": "Listed", "readQueueNums": 1, "writeQueueNums": 1}]')
    groups.write_text(json.dumps([{"groupName": name} for name in (GROUP, "copy")]))

    admin("updateTopic", *CLUSTER, "-t", TOPIC, "-r", "2", "-w", "2")
    admin("updateTopicList", *CLUSTER, "-f", str(topics))
    admin("updateSubGroupList", *CLUSTER, "-f", str(groups))
    admin("updateSubGroup", "-b", leader, "-g", GROUP, "-r", "3")
    assert admin("getConsumerConfig", "-g", GROUP)[NAME]["retryMaxTimes"] == 3
    admin("updateTopicPerm", "-b", leader, "-t", TOPIC, "-p", "4")
    wait_for(lambda: admin("topicRoute", "-t", TOPIC)[0]["perm"] == 4, 30, "the permission to be registered")
    admin("updateTopicPerm", *CLUSTER, "-t", TOPIC, "-p", "6")
    wait_for(lambda: admin("topicRoute", "-t", TOPIC)[0]["perm"] == 6, 30, "the permission to be registered")

    [sent] = admin("sendMessage", "-t", TOPIC, "-p", "body", "-k", "key", "-c", "A", "-b", NAME, "-i", "1")
    assert admin("topicStatus", "-t", TOPIC)[1]["max"] == 1
    [found] = wait_for(lambda: admin("queryMsgByKey", "-t", TOPIC, "-k", "key"), 10, "the key")
    assert found["msg_id"] == sent["msg_id"]
    [by_id] = admin("queryMsgById", "-t", TOPIC, "-i", sent["offset_msg_id"]).values()
    [by_key] = admin("queryMsgByUniqueKey", "-t", TOPIC, "-i", sent["msg_id"]).values()
    by_offset = admin("queryMsgByOffset", "-t", TOPIC, "-b", NAME, "-i", "1", "-o", "0")
    assert by_id == by_key == {**by_offset, "groups": {}}
    assert by_id["body"] == "body"
    [unit] = admin("queryCq", "-t", TOPIC, "-q", "1", "-i", "0")["units"]
    assert unit["phy_offset"] == by_id["phy_offset"]
    assert [row["body"] for row in admin("printMsg", "-t", TOPIC)] == ["body"]
    assert admin("printMsgByQueue", "-t", TOPIC, "-a", NAME, "-i", "1") == {"messages": 1}
    assert len(admin("consumeMessage", "-t", TOPIC)) == 1
    assert len(admin("sendMsgStatus", "-b", NAME, "-c", "2")) == 2
    assert len(admin("checkMsgSendRT", "-t", TOPIC, "-a", "2")) == 2
    assert admin("clusterRT", "-a", "2")[0]["successes"] == 2

    def rows() -> list[dict[str, Any]]:
        return admin("consumerProgress", "-g", GROUP, "-t", TOPIC)

    reader = subprocess.Popen(
        [
            *(sys.executable, "-m", "mq", "consume", "-n", cluster.namesrv, "--topic", TOPIC),
            *("--group", GROUP, "--from", "first"),
        ],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    try:
        wait_for(lambda: sum(row["consumer_offset"] for row in rows()) >= 3, 60, "the reader's progress")
        [client] = admin("consumerConnection", "-g", GROUP)["clients"]
        assert client["language"] == "PYTHON"
        assert any(row["group"] == GROUP for row in admin("consumerProgress"))
        assert any(row["group"] == GROUP for row in admin("topicList", "-c"))
        assert any(row["group"] == GROUP for row in admin("statsAll", "-t", TOPIC))
        assert any(row["group"] == GROUP for row in admin("brokerConsumeStats", "-b", leader))
    finally:
        reader.terminate()
        reader.wait()
    admin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
    assert {row["consumer_offset"] for row in rows()} == {0}
    admin("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)
    assert {row["diff"] for row in rows()} == {0}
    cloned = admin("cloneGroupOffset", "-s", GROUP, "-d", "copy", "-t", TOPIC)
    assert [row["offset"] for row in cloned] == [row["consumer_offset"] for row in rows()]

    assert [row["id"] for row in admin("clusterList") if row["active"]] == [0]
    assert admin("brokerStatus", "-b", leader)[leader]["brokerActive"] == "true"
    assert admin("haStatus", "-b", leader)[leader]["master"]
    admin("updateBrokerConfig", "-b", leader, "-k", "slaveReadEnable", "-v", "true")
    assert admin("getBrokerConfig", "-b", leader)[leader]["slaveReadEnable"] == "true"
    assert admin("topicClusterList", "-t", TOPIC) == [{"cluster": "DefaultCluster"}]
    assert len(admin("allocateMQ", "-t", TOPIC, "-i", "a,b")) == 2
    assert admin("producer", "-b", leader) == []
    admin("exportMetadata", *CLUSTER, "-f", str(tmp_path))
    assert set(json.loads((tmp_path / "metadata.json").read_text())["topicConfigTable"]) == {TOPIC, "Listed"}

    admin("addMember", *CLUSTER, "-i", "n9", "-a", f"127.0.0.1:{cluster.base_port + 95}")
    assert {row["id"]: row["role"] for row in admin("memberList", *CLUSTER)} == {
        "n0": "voter",
        "n1": "voter",
        "n2": "voter",
        "n9": "learner",
    }
    admin("removeMember", *CLUSTER, "-i", "n9")
    assert [row["id"] for row in admin("memberList", *CLUSTER)] == ["n0", "n1", "n2"]
    admin("scrub", *CLUSTER)
    wait_for(
        lambda: all(row["rounds"] for row in admin("scrubStatus", *CLUSTER)),
        60,
        "all to be read once by each",
    )
    assert [row["faults"] for row in admin("scrubStatus", *CLUSTER)] == [0, 0, 0]
    assert [row["ranges"] for row in admin("repairStatus", *CLUSTER)] == [[], [], []]
    assert admin("timerStatus", *CLUSTER) == []
    admin("setConsumeMode", *CLUSTER, "-g", GROUP, "-t", TOPIC, "-m", "POP")
    assert admin("popStatus", *CLUSTER) == []
    assert admin("transactionStatus", *CLUSTER) == []
    [handed_over] = admin("transferLeader", "-b", leader)
    assert handed_over["leader"] == cluster.leader() != leader_id
    leader = leader_address(cluster)

    assert admin("getNamesrvConfig")
    admin("updateKvConfig", "-s", "N", "-k", "a", "-v", "b")
    admin("deleteKvConfig", "-s", "N", "-k", "a")
    admin("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"{NAME}:2")
    assert admin("updateOrderConf", "-t", TOPIC, "-m", "get")[0]["order_conf"] == f"{NAME}:2"
    assert admin("wipeWritePerm", "-b", NAME)[0]["topics"] > 0
    assert admin("addWritePerm", "-b", NAME)[0]["topics"] > 0

    admin("deleteSubGroup", *CLUSTER, "-g", GROUP, "-r", "true")
    wait_for(lambda: list(files.glob(f"{TOPIC}/*/*")), 90, "units on the disk")
    admin("deleteTopic", *CLUSTER, "-t", TOPIC)
    assert {"topic": TOPIC} not in admin("topicList")
    assert len(admin("deleteExpiredCommitLog", *CLUSTER)) == 3
    assert len(admin("cleanExpiredCQ", *CLUSTER)) == 3
    assert len(admin("cleanUnusedTopic", *CLUSTER)) == 3
    wait_for(lambda: not list(files.glob(f"{TOPIC}/*/*")), 60, "the deleted topic's files to go")
    use_access_commands(admin, tmp_path)
    # Our own clients tell nothing of themselves and trace nothing; a NameServer has nothing to change; no transaction
    # was given up.
    unused = {"consumerStatus", "producerConnection", "queryMsgTraceById", "updateNamesrvConfig"}
    assert admin.used == COMMANDS.keys() - unused - {"resumeCheckHalfMessage"}


def use_access_commands(admin: MqAdmin, tmp_path: Path) -> None:
    password, accounts = tmp_path / "password", tmp_path / "plain_acl.yml"
    password.write_text("very-secret\n")
    accounts.write_text("accounts:\n- accessKey: imported\n  secretKey: very-secret\n  admin: true\n")
    subject = ("-s", "User:app")

    admin("createUser", *CLUSTER, "-u", "app", "--passwordFile", str(password))
    admin("importPlainAcl", *CLUSTER, "-f", str(accounts))
    admin("updateUser", *CLUSTER, "-u", "app", "-s", "disable")
    assert [user["status"] for user in admin("getUser", *CLUSTER, "-u", "app")] == ["disable"]
    assert {user["username"] for user in admin("listUser", *CLUSTER)} == {"app", "imported"}
    admin("createAcl", *CLUSTER, *subject, "-r", "Topic:orders", "-a", "Pub", "-d", "Allow")
    admin("updateAcl", *CLUSTER, *subject, "-r", "Topic:orders", "-a", "Pub,Sub", "-d", "Allow")
    assert admin("getAcl", *CLUSTER, *subject) == admin("listAcl", *CLUSTER) != []
    assert admin("explainAccess", *CLUSTER, "-u", "app", "--code", "SEND_MESSAGE_V2", "-r", "Topic:orders")
    admin("deleteAcl", *CLUSTER, *subject)
    admin("deleteUser", *CLUSTER, "-u", "app")
    assert admin("listAcl", *CLUSTER) == []
    assert {"AUTH_CREATE_USER", "AUTH_DELETE_USER"} <= {row["request"] for row in admin("audit", *CLUSTER)}


@pytest.mark.java
def test_mqadmin_shows_the_same(cluster: LocalCluster, admin: MqAdmin, tmp_path: Path) -> None:
    admin("updateTopic", *CLUSTER, "-t", TOPIC, "-r", "2", "-w", "2")
    for _ in range(3):
        admin("sendMessage", "-t", TOPIC, "-p", "body")
    admin("updateSubGroup", *CLUSTER, "-g", GROUP)
    admin("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s", "0")
    with JavaMqAdmin(cluster.namesrv, tmp_path / "mqadmin") as java:
        route = TopicRouteData.decode(java.run("topicRoute", "-t", TOPIC).encode())
        [ours] = admin("topicRoute", "-t", TOPIC)
        addresses = dict(route.broker_datas[0].broker_addrs)
        assert addresses.pop(0) == ours["leader"]
        assert sorted(addresses.values()) == sorted(ours["followers"])
        assert route.queue_datas[0].read_queue_nums == ours["read_queues"]

        status = rows_of(NAME, java.run("topicStatus", "-t", TOPIC))
        assert [row[:4] for row in status] == [
            [row["broker"], str(row["queue"]), str(row["min"]), str(row["max"])]
            for row in admin("topicStatus", "-t", TOPIC)
        ]
        progress = rows_of(TOPIC, java.run("consumerProgress", "-g", GROUP, "-t", TOPIC))
        assert [row[:6] for row in progress] == [
            [
                TOPIC, row["broker"], str(row["queue"]), str(row["broker_offset"]), str(row["consumer_offset"]),
                str(row["diff"]),
            ]
            for row in admin("consumerProgress", "-g", GROUP, "-t", TOPIC)
        ]  # fmt: skip
        members = rows_of("DefaultCluster", java.run("clusterList"))
        assert sorted(row[:5] for row in members) == sorted(
            [row["cluster"], row["broker"], str(row["id"]), row["address"], row["version"]]
            for row in admin("clusterList")
        )


def rows_of(first: str, printed: str) -> list[list[str]]:
    """Rows of a table of mqadmin, by what stands in their first column."""
    rows = (line.split() for line in printed.splitlines())
    return [row for row in rows if row[:1] == [first]]
