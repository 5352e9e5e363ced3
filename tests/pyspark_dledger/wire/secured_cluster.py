"""A NameServer and a broker over real ports, with access control and TLS alone, and the files of those who may come.

They run in a thread of their own, so that what blocks can be tested. The user `app` may write and read topic `orders`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mqclient
from auth.credentials import Credentials
from broker.config.config_file import read_broker_config
from broker.server import Broker
from mqclient.loop_thread import LoopThread
from namesrv.namesrv import Namesrv
from namesrv.namesrv_config import load_namesrv_config
from pyspark_dledger.wire.cluster_access import ClusterAccess
from remoting.bodies.auth_bodies import PolicyEntryInfo, UserInfo
from remoting.bodies.topic_bodies import TopicConfig
from remoting.certificates import Authority
from remoting.configuration import parse_properties
from remoting.tls import TlsFiles
from tests.free_ports import free_ports

TOPIC, BROKER = "orders", "G"
SECRETS = {"root": "secret-of-root", "app": "secret-of-app", "inner": "secret-of-broker"}
ROOT = Credentials("root", SECRETS["root"])
_SERVING_S = 30.0


@dataclass
class SecuredCluster:
    namesrv: str
    directory: Path  # of the files

    def access(self, user: str = "app", authority: str = "ca") -> ClusterAccess:
        return ClusterAccess((self.namesrv,), str(self.keys(user)), str(self.tls(authority)))

    def keys(self, user: str) -> Path:
        return self.directory / f"{user}.keys"

    def tls(self, authority: str = "ca") -> Path:
        return self.directory / f"{authority}.properties"


@contextmanager
def secured_cluster(directory: Path) -> Iterator[SecuredCluster]:
    _write_files(directory)
    thread = LoopThread("secured cluster")
    thread.start()
    servers: list[Namesrv | Broker] = []
    try:
        yield SecuredCluster(thread.call(_start(directory, servers)), directory)
    finally:
        try:
            thread.call(_stop(servers))
        finally:
            thread.close()


def _write_files(directory: Path) -> None:
    for name in ("ca", "strangers"):
        files = TlsFiles(key_path=f"{directory}/{name}.key", cert_path=f"{directory}/{name}.crt")
        authority = Authority.make(name, 30)
        authority.write(files)
        (directory / f"{name}.properties").write_text(f"tls.client.trustCertPath={files.cert_path}\n")
        if name == "ca":
            server = TlsFiles(key_path=f"{directory}/server.key", cert_path=f"{directory}/server.crt")
            authority.issue(server, "server", 30, ["127.0.0.1"])
    for user, secret in {**SECRETS, "forger": "another"}.items():
        name = "app" if user == "forger" else user
        (directory / f"{user}.keys").write_text(f"accessKey={name}\nsecretKey={secret}\n")


def _tls_keys(directory: Path) -> dict[str, str]:
    return {
        "tls.server.mode": "enforcing",
        "tls.server.keyPath": f"{directory}/server.key",
        "tls.server.certPath": f"{directory}/server.crt",
        "tls.client.trustCertPath": f"{directory}/ca.crt",
    }


async def _start(directory: Path, servers: list[Namesrv | Broker]) -> str:
    """Returns the NameServer's address, once `app` may use its topic. What has to be stopped is in `servers`."""
    users = ",".join(
        f'{{"username":"{name}","password":"{SECRETS[name]}","userType":"{kind}"}}'
        for name, kind in (("inner", "Super"), ("root", "Super"), ("app", "Normal"))
    )
    keys = {"authenticationEnabled": "true", "pyDLedgerUsers": f"[{users}]", "listenPort": "0"}
    namesrv = Namesrv(
        load_namesrv_config(None, keys | {"bindAddress": "127.0.0.1"} | _tls_keys(directory))[0]
    )
    await namesrv.start()
    servers.append(namesrv)
    address = f"127.0.0.1:{namesrv.port}"
    port, peer_port = free_ports(2)
    conf = _tls_keys(directory) | {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": BROKER,
        "dLegerPeers": f"n0-127.0.0.1:{peer_port}",
        "dLegerSelfId": "n0",
        "brokerName": BROKER,
        "listenPort": str(port),
        "bindAddress": "127.0.0.1",
        "brokerIP1": "127.0.0.1",
        "namesrvAddr": address,
        "storePathRootDir": f"{directory}/store",
        "mapedFileSizeCommitLog": "1048576",
        "maxHashSlotNum": "97",
        "maxIndexNum": "300",
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "initAuthenticationUser": f'{{"username":"root","password":"{SECRETS["root"]}"}}',
        "innerClientAuthenticationCredentials": f'{{"accessKey":"inner","secretKey":"{SECRETS["inner"]}"}}',
    }
    text = "\n".join(f"{key}={value}" for key, value in conf.items())
    broker = Broker(read_broker_config(parse_properties(text, "broker.conf"), "broker.conf")[0])
    await broker.start()
    servers.append(broker)
    connect = mqclient.tls_from_file(f"{directory}/ca.properties")
    async with (
        mqclient.Admin(address, credentials=ROOT, connect=connect) as admin,
        asyncio.timeout(_SERVING_S),
    ):
        leader = await _leader(admin)
        await admin.access.create_user(leader, UserInfo(username="app", password=SECRETS["app"]))
        entries = [
            PolicyEntryInfo(resource=resource, actions=["Pub", "Sub", "Get"], decision="Allow")
            for resource in (f"Topic:{TOPIC}", "Group:TOOLS_CONSUMER")
        ]
        await admin.access.put_policy(leader, "User:app", "Custom", entries)
        await admin.topics.put(leader, TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1))
    return address


async def _leader(admin: mqclient.Admin) -> str:
    while True:
        brokers = (await admin.brokers.clusters()).broker_addr_table
        if BROKER in brokers and 0 in brokers[BROKER].broker_addrs:
            return brokers[BROKER].broker_addrs[0]


async def _stop(servers: list[Namesrv | Broker]) -> None:
    for server in reversed(servers):
        await (server.close() if isinstance(server, Namesrv) else server.stop())
