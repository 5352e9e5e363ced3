"""RocketMQ's gRPC clients at a proxy with access control: right and wrong keys, forbidden topics, a disabled user.

Ours before our brokers, and RocketMQ's before its own, which proves the test.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from originals.doors.door import WAIT_S, OurProxy, listens
from originals.doors.grpc_client import QUICKLY_BUILT, GrpcProgram, grpc_program
from originals.java_client import Keys
from originals.java_servers import JavaProxy
from originals.serving import SERVERS, Serving, serving
from secured_cluster import CONF, CONF_OF_PROXY, CONF_OF_ROCKETMQ, CONF_OF_ROCKETMQS_PROXY, ROOT, at_leaders
from workload.topic import make_topic

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("as_root")]


@dataclass(frozen=True)
class SecuredDoor:
    servers: Serving
    endpoint: str


@pytest.fixture(scope="module", params=SERVERS)
def door(
    request: pytest.FixtureRequest,
    as_root: None,
    shared_cluster: LocalCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[SecuredDoor]:
    work, ours = tmp_path_factory.mktemp("door"), request.param == "ours"
    with serving(request.param, shared_cluster, work, CONF if ours else CONF_OF_ROCKETMQ, ROOT) as servers:
        place = work / "proxy", servers.namesrv, shared_cluster.base_port + 80
        proxy = OurProxy(*place, **CONF_OF_PROXY) if ours else JavaProxy(*place, **CONF_OF_ROCKETMQS_PROXY)
        with proxy:
            wait_for(lambda: listens(proxy.address), WAIT_S, "the proxy")
            yield SecuredDoor(servers, proxy.address)


@pytest.mark.parametrize("language", QUICKLY_BUILT)
def test_a_client_does_what_policies_allow_and_nothing_else(
    language: str, door: SecuredDoor, tmp_path: Path
) -> None:
    program = grpc_program(language, tmp_path / "home")
    program.work.mkdir()
    secret = tmp_path / "app.secret"
    secret.write_text("app-secret")
    servers, user, group = door.servers, f"{language}_app", f"{language}_group"
    allowed, forbidden = f"{language}_allowed", f"{language}_forbidden"
    app = ("-u", user)
    wait_for(lambda: at_leaders(servers, "createUser", *app, "--passwordFile", str(secret)), WAIT_S, "a user")
    rule = ("-s", f"User:{user}", "-r", f"Topic:{allowed},Group:{group}", "-a", "Pub,Sub", "-d", "Allow")
    for topic in (allowed, forbidden):
        make_topic(servers.namesrv, WAIT_S, topic)
    wait_for(lambda: at_leaders(servers, "createAcl", *rule), WAIT_S, "a policy")
    with program.start(door.endpoint, allowed, (user, "app-secret")) as client:
        client.push(allowed, group)
        client.send("k", allowed)
        client.wait_sent("k")
        client.wait_told("received", key="k")
        client.send("other", forbidden)
        wait_for(lambda: client.told("failed"), WAIT_S, "a refusal")
        assert not client.told("sent", key="other")
        assert at_leaders(servers, "updateUser", *app, "-s", "disable")
        refusals = len(client.told("failed"))
        keys = (f"late{number}" for number in count())

        def is_refused() -> bool:
            key = next(keys)
            client.send(key, allowed)
            wait_for(
                lambda: client.told("sent", key=key) or len(client.told("failed")) > refusals, WAIT_S, key
            )
            return not client.told("sent", key=key)

        wait_for(is_refused, WAIT_S, "the user to be disabled")
    for credentials in ((user, "app-secret"), ("root", "wrong"), ("nobody", "s"), None):
        assert not has_sent(program, door.endpoint, allowed, credentials), credentials


def has_sent(program: GrpcProgram, endpoint: str, topic: str, credentials: Keys | None) -> bool:
    """Whether a message of such a client is stored."""
    with (
        suppress(AssertionError),
        program.start(endpoint, topic, credentials) as client,
    ):  # some end when refused
        client.send("k", topic)
        wait_for(lambda: client.told("sent") or client.told("failed"), WAIT_S, "the end of a send")
        return bool(client.told("sent"))
    return False
