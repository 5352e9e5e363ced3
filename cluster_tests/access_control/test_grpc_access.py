"""RocketMQ's gRPC clients at a proxy with access control: right and wrong keys, forbidden topics, a disabled user."""

import json
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
from local_cluster import LocalCluster, wait_for
from originals.doors.door import WAIT_S, OurProxy, listens
from originals.doors.grpc_client import QUICKLY_BUILT, GrpcProgram, grpc_program
from secured_cluster import CONF, ROOT, at_leaders

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.usefixtures("as_root")]


@pytest.mark.parametrize("language", QUICKLY_BUILT)
def test_a_client_does_what_policies_allow_and_nothing_else(
    language: str, cluster: LocalCluster, tmp_path: Path
) -> None:
    program = grpc_program(language, tmp_path / "home")
    program.work.mkdir()
    secret = tmp_path / "app.secret"
    secret.write_text("app-secret")
    cluster.up(conf=CONF)
    cluster.leader()
    app = ("-u", "app")
    wait_for(lambda: at_leaders(cluster, "createUser", *app, "--passwordFile", str(secret)), WAIT_S, "a user")
    rule = ("-s", "User:app", "-r", "Topic:allowed,Group:g", "-a", "Pub,Sub", "-d", "Allow")
    for change in (
        ("updateTopic", "-t", "allowed"),
        ("updateTopic", "-t", "forbidden"),
        ("createAcl", *rule),
    ):
        wait_for(lambda change=change: at_leaders(cluster, *change), WAIT_S, change[0])
    inner = json.dumps(dict(zip(("accessKey", "secretKey"), ROOT, strict=True)))
    with OurProxy(
        tmp_path / "proxy",
        cluster.namesrv,
        cluster.base_port + 80,
        authenticationEnabled=True,
        innerClientAuthenticationCredentials=inner,
    ) as proxy:
        wait_for(lambda: listens(proxy.address), WAIT_S, "the proxy")
        with program.start(proxy.address, "allowed", ("app", "app-secret")) as client:
            client.push("allowed", "g")
            client.send("k", "allowed")
            client.wait_sent("k")
            client.wait_told("received", key="k")
            client.send("other", "forbidden")
            wait_for(lambda: client.told("failed"), WAIT_S, "a refusal")
            assert not client.told("sent", key="other")
            assert at_leaders(cluster, "updateUser", *app, "-s", "disable")
            refusals = len(client.told("failed"))
            keys = (f"late{number}" for number in count())

            def is_refused() -> bool:
                key = next(keys)
                client.send(key, "allowed")
                wait_for(
                    lambda: client.told("sent", key=key) or len(client.told("failed")) > refusals, WAIT_S, key
                )
                return not client.told("sent", key=key)

            wait_for(is_refused, WAIT_S, "the user to be disabled")
        for credentials in (("app", "app-secret"), ("root", "wrong"), ("nobody", "s"), None):
            assert not has_sent(program, proxy.address, credentials), credentials


def has_sent(program: GrpcProgram, endpoint: str, credentials: tuple[str, str] | None) -> bool:
    """Whether a message of such a client is stored."""
    with (
        suppress(AssertionError),
        program.start(endpoint, "allowed", credentials) as client,
    ):  # some end when refused
        client.send("k", "allowed")
        wait_for(lambda: client.told("sent") or client.told("failed"), WAIT_S, "the end of a send")
        return bool(client.told("sent"))
    return False
