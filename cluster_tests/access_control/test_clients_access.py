"""Clients of several languages with right, wrong and no keys, and of a disabled user; also at RocketMQ's broker."""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from local_cluster import LocalCluster, wait_for
from originals.java_client import Keys
from originals.kinds_client import WAIT_S, Kinds, kinds_program, wait_received
from originals.serving import SERVERS, Serving, serving
from secured_cluster import CONF, CONF_OF_ROCKETMQ, ROOT, at_leaders
from workload.topic import make_topic

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("as_root")]

# test_java_access.py has Java's newest at every landing.
CLIENTS = (
    "go",
    "mqclient",
    *(pytest.param(name, marks=pytest.mark.long) for name in ("java-5.5.0", "java-4.9.8", "node")),
)

NODE_TELLS = "Send [1] times, still failed"  # and not what the broker has said
KEYS = (f"k{number}" for number in count())


@pytest.fixture(scope="module", params=SERVERS)
def servers(
    request: pytest.FixtureRequest,
    as_root: None,
    shared_cluster: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Serving]:
    conf = CONF if request.param == "ours" else CONF_OF_ROCKETMQ
    with serving(request.param, shared_cluster, tmp_path_factory.mktemp("servers"), conf, ROOT) as servers:
        yield servers


@pytest.mark.parametrize("name", CLIENTS)
def test_a_client_is_served_as_its_keys_say(name: str, servers: Serving, tmp_path: Path) -> None:
    """Root's client shows each time that others are given what an intruder is not."""
    program = kinds_program(name, tmp_path / "client")
    topic = user = name.replace("-", "_").replace(".", "_")
    groups = {who: f"{topic}_{who}" for who in ("root", "right", "wrong", "missing")}
    keys: dict[str, Keys | None] = {
        "root": ROOT,
        "right": (user, "its-secret"),
        "wrong": (user, "other"),
        "missing": None,
    }
    (tmp_path / "secret").write_text("its-secret")
    # RocketMQ's broker wants Get of a consumer that looks where a queue begins or ends.
    actions = "Pub,Sub" if servers.is_ours else "Pub,Sub,Get"
    make_topic(servers.namesrv, WAIT_S, topic)
    allowed = f"Topic:{topic},{','.join(f'Group:{group}' for group in groups.values())}"
    for change in (
        ("createUser", "-u", user, "--passwordFile", str(tmp_path / "secret")),
        ("createAcl", "-s", f"User:{user}", "-r", allowed, "-a", actions, "-d", "Allow"),
    ):
        wait_for(lambda change=change: at_leaders(servers, *change), WAIT_S, change[0])
    with ExitStack() as stack:
        clients = {
            who: stack.enter_context(
                program.start(servers.namesrv, f"{groups[who]}_producers", who, keys[who])
            )
            for who in groups
        }
        for who, client in clients.items():
            client.consume(topic, groups[who])
        root, right = clients["root"], clients["right"]
        wait_for(lambda: root.told("consuming") and right.told("consuming"), WAIT_S, "consumers")
        first = wait_for(lambda: acknowledged(right, topic), WAIT_S, "a send that policies allow")
        wait_received(right, groups["right"], {first})
        wait_received(root, groups["root"], {first})
        for who, words in (("wrong", "check signature failed."), ("missing", "username cannot be null.")):
            why = words if name != "node" else NODE_TELLS
            wait_for(lambda who=who, why=why: is_refused(clients[who], topic, why), WAIT_S, why)

        assert at_leaders(servers, "updateUser", "-u", user, "-s", "disable")
        why = f"User:{user} is disabled." if name != "node" else NODE_TELLS
        wait_for(lambda: is_refused(right, topic, why), WAIT_S, why)
        meanwhile = wait_for(lambda: acknowledged(root, topic), WAIT_S, "a send of root")
        wait_received(root, groups["root"], {meanwhile})
        # RocketMQ's broker gives a pull that has waited for it what comes after its user was disabled.
        assert meanwhile not in right.keys("received") or not servers.is_ours
        assert at_leaders(servers, "updateUser", "-u", user, "-s", "enable")
        wait_received(right, groups["right"], {meanwhile})
        last = wait_for(lambda: acknowledged(right, topic), WAIT_S, "a send of the enabled user")
        wait_received(root, groups["root"], {last})
        for who in ("wrong", "missing"):
            assert not clients[who].keys("received") | clients[who].keys("sent"), who


def acknowledged(client: Kinds, topic: str) -> str | None:
    """The key of one more send, if that is stored."""
    end = end_of_send(client, topic)
    return str(end["key"]) if end["event"] == "sent" else None


def is_refused(client: Kinds, topic: str, why: str) -> bool:
    return why in end_of_send(client, topic).get("error", "")


def end_of_send(client: Kinds, topic: str) -> dict[str, Any]:
    key = next(KEYS)
    client.send(key, topic)
    ends = wait_for(lambda: client.told("sent", key=key) or client.told("failed", key=key), WAIT_S, key)
    return dict(ends[0])
