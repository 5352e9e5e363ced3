"""Secrets of the confs are in no output, log, status, answer or file of the servers, whatever is asked of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from mq.cluster_layout import ClusterLayout, ClusterOptionError
from mq.tls_files import TlsDirectory
from tests.free_ports import free_ports

pytestmark = pytest.mark.slow

CLUSTER_SECRET = "between-us-8f2c1d"
FORMER_SECRET = "formerly-3a77e0"
PASSWORD = "of-the-key-55d9b2"
USER_PASSWORD = "of-the-user-0be417"
SECRETS = (CLUSTER_SECRET, FORMER_SECRET, PASSWORD, USER_PASSWORD)


def encrypt_key(path: str) -> None:
    key = serialization.load_pem_private_key(Path(path).read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(PASSWORD.encode())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    Path(path).write_bytes(key.private_bytes(*form, encryption))


class Confs:
    """A NameServer, a broker of a group of one, and a proxy, each with every secret that it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tls = TlsDirectory(folder / "tls")
        self.tls.make([])
        files = self.tls.files("localhost")
        encrypt_key(files.key_path)
        self.namesrv_port, self.broker_port, self.raft_port, self.http_port = free_ports(4)
        (folder / "cluster-secret").write_text(f"{CLUSTER_SECRET}\n{FORMER_SECRET}\n")
        tls = (
            f"tls.config.file={self.tls.properties_file('localhost')}\n"
            f"tls.server.keyPassword={PASSWORD}\ntls.client.keyPassword={PASSWORD}\n"
        )
        self.namesrv = self._write(
            "namesrv.conf",
            f"bindAddress=127.0.0.1\nlistenPort={self.namesrv_port}\n{tls}"
            f'pyDLedgerUsers=[{{"username":"u","password":"{USER_PASSWORD}"}}]\n',
        )
        self.broker_text = (
            f"brokerIP1=127.0.0.1\nbindAddress=127.0.0.1\nlistenPort={self.broker_port}\n"
            f"namesrvAddr=127.0.0.1:{self.namesrv_port}\nstorePathRootDir={folder}/store\n"
            f"enableDLegerCommitLog=true\ndLegerGroup=G\ndLegerPeers=n0-127.0.0.1:{self.raft_port}\n"
            f"dLegerSelfId=n0\nmapedFileSizeCommitLog=1048576\npyDLedgerHttpPort={self.http_port}\n"
            f"pyDLedgerPeerTls=enforcing\n{tls}"
            f'initAuthenticationUser={{"username":"u","password":"{USER_PASSWORD}"}}\n'
            f'innerClientAuthenticationCredentials={{"accessKey":"u","secretKey":"{USER_PASSWORD}"}}\n'
        )
        secret_file = f"pyDLedgerClusterSecretFile={folder}/cluster-secret\n"
        self.broker = self._write("broker.conf", self.broker_text + secret_file)
        proxy = {
            "namesrvAddr": f"127.0.0.1:{self.namesrv_port}",
            "tlsKeyPath": files.key_path,
            "tlsCertPath": files.cert_path,
            "tlsKeyPassword": PASSWORD,
            "tls.client.keyPassword": PASSWORD,
        }
        self.proxy = self._write("rmq-proxy.json", json.dumps(proxy))

    def _write(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def broken(self, number: int, line: str) -> str:
        return self._write(f"broken-{number}.conf", f"{self.broker_text}{line}\n")


def run(*arguments: str, environment: dict[str, str] | None = None) -> str:
    """All that a command says, however it ends."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=60,
    )
    return done.stdout


@pytest.fixture(scope="module")
def confs(tmp_path_factory: pytest.TempPathFactory) -> Confs:
    return Confs(tmp_path_factory.mktemp("unseen"))


@pytest.fixture(scope="module")
def logs(confs: Confs) -> Iterator[dict[str, Path]]:
    """Of a NameServer and a broker that run."""
    logs, processes = {}, []
    for server, conf in (("namesrv", confs.namesrv), ("broker", confs.broker)):
        logs[server] = confs.folder / f"{server}.log"
        with logs[server].open("wb") as log:
            command = [sys.executable, "-m", "mq.server_entry", server, "-c", conf]
            processes.append(subprocess.Popen(command, stdout=log, stderr=log))
    try:
        yield logs
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


def wait_registered(logs: dict[str, Path]) -> None:
    """Until the NameServer knows the broker, or says at its log's end why not."""
    follow = ["tail", "-n", "+1", "-F", str(logs["namesrv"])]
    with subprocess.Popen(follow, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as lines:
        assert lines.stdout is not None
        timer = threading.Timer(60, lines.kill)
        timer.start()
        found = any("broker registered" in line for line in lines.stdout)
        timer.cancel()
        lines.kill()
    assert found, logs["broker"].read_text()


def unseen(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


def test_what_is_in_effect_is_printed_without_secrets(confs: Confs) -> None:
    for server, conf, flags in (
        ("broker", ["-c", confs.broker], ["-p"]),
        ("broker", ["-c", confs.broker], ["-m"]),
        ("namesrv", ["-c", confs.namesrv], ["-p"]),
        ("proxy", ["-pc", confs.proxy], ["-p"]),
    ):
        printed = run("mq.server_entry", server, *conf, *flags)
        assert "namesrvAddr=" in printed or "listenPort=" in printed
        unseen(printed)


@pytest.mark.parametrize(
    "line",
    [
        f"pyDLedgerClusterSecret={CLUSTER_SECRET}\npyDLedgerClusterSecretFile=x",
        f"pyDLedgerClusterSecret={CLUSTER_SECRET}\npyDLedgerClusterSecret={FORMER_SECRET}\nlistenPort=0",
        f"pyDLedgerClusterSecrets={CLUSTER_SECRET}",
        f"tls.server.keyPasswort={PASSWORD}",
        f"tls.server.keyPassword=not-{PASSWORD}",
        f'initAuthenticationUser={{"username":"u","password":"{PASSWORD}"}}\nlistenPort=0',
    ],
)
def test_mistakes_are_told_without_secrets(confs: Confs, line: str) -> None:
    conf = confs.broken(abs(hash(line)), line + "\npyDLedgerHeartBeatIntervalMs=x")
    told = run("mq.server_entry", "broker", "-c", conf)
    assert "mqbroker: " in told
    unseen(told)


def test_a_running_broker_shows_no_secret(confs: Confs, logs: dict[str, Path]) -> None:
    client = {"PYDLEDGER_TLS_CONFIG_FILE": str(confs.tls.properties_file("client"))}
    namesrv = f"127.0.0.1:{confs.namesrv_port}"
    broker = f"127.0.0.1:{confs.broker_port}"

    def admin(*arguments: str) -> str:
        return run("mq", "admin", *arguments, "-n", namesrv, "--json", environment=client)

    wait_registered(logs)
    for arguments in (
        ("getBrokerConfig", "-b", broker),
        ("brokerStatus", "-b", broker),
        ("memberList", "-b", broker),
        ("exportMetadata", "-c", "DefaultCluster", "-f", f"{confs.folder}/metadata"),
        ("getNamesrvConfig",),
        ("updateBrokerConfig", "-b", broker, "-k", "pyDLedgerClusterSecret", "-v", "replaced-by-this"),
        ("updateBrokerConfig", "-b", broker, "-k", "tls.server.keyPassword", "-v", "replaced-by-this"),
    ):
        unseen(admin(*arguments))
    for path in ("status", "metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{confs.http_port}/{path}") as answer:
            unseen(answer.read().decode())
    for log in logs.values():
        text = log.read_text()
        assert "started" in text
        unseen(text)
        assert "replaced-by-this" not in text
    for path in (confs.folder / "store").rglob("*"):
        if path.is_file():
            assert not any(secret.encode() in path.read_bytes() for secret in SECRETS), path


def test_a_secret_of_the_command_line_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterOptionError, match="give --conf pyDLedgerClusterSecretFile=FILE") as caught:
        ClusterLayout(dir=str(tmp_path), conf={"pyDLedgerClusterSecret": CLUSTER_SECRET})
    unseen(str(caught.value))
