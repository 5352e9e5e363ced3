"""Which processes make up a cluster on this machine: names, ports, conf files.

Pure values; `cluster.py` starts and ends the processes. Ports: NameServer P; gRPC proxy P+1; broker k (counted over
all groups) listens on P+10+10k (and for VIP channels on P+8+10k), its Raft port is P+15+10k, its HTTP port P+16+10k, so
clusters with base ports 100 apart do not meet (up to 9 brokers).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from remoting.address import AddressError, parse_address
from remoting.secret import SECRET_KEYS

HOST = "127.0.0.1"
NAMESRV = "namesrv"
PROXY = "proxy"
CLUSTER_NAME = "DefaultCluster"
NODES_PER_GROUP_MAX = 9
NODES_MAX = 27


class ClusterOptionError(ValueError):
    """An option that makes no sense, in words for the one who typed it."""


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """One broker. `id` is its member id in the group (`dLegerSelfId`), unique over all groups."""

    id: str
    group: str
    listen_port: int
    raft_port: int
    http_port: int
    dir: str

    @property
    def listen(self) -> str:
        return f"{HOST}:{self.listen_port}"

    @property
    def raft(self) -> str:
        return f"{HOST}:{self.raft_port}"

    @property
    def http(self) -> str:
        return f"{HOST}:{self.http_port}"

    @property
    def store_dir(self) -> Path:
        return Path(self.dir) / "store"

    @property
    def conf_file(self) -> Path:
        return Path(self.dir) / "broker.conf"

    @property
    def log_file(self) -> Path:
        return Path(self.dir) / "broker.log"


# Keys that would be wrong in all conf files but one.
_OWN_TO_EACH = frozenset({"listenPort", "storePathRootDir", "dLegerSelfId", "pyDLedgerHttpPort"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """`peer_dials`: "n0:n1" to the address at which n0 reaches n1's Raft port. `conf`: further lines of every conf
    file, which win over ours."""

    dir: str
    nodes_per_group: int = 3
    groups: int = 1
    base_port: int = 9876
    peer_dials: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    proxy: bool = False
    tls: bool = False

    def __post_init__(self) -> None:
        if self.nodes_per_group < 1 or self.groups < 1:
            raise ClusterOptionError("--nodes and --groups must be at least 1")
        if self.nodes_per_group > NODES_PER_GROUP_MAX:
            raise ClusterOptionError(
                f"--nodes {self.nodes_per_group}: {NODES_PER_GROUP_MAX} brokers in a group at most, "
                "each waits for a majority of them; --groups makes more groups"
            )
        if self.nodes_per_group * self.groups > NODES_MAX:
            raise ClusterOptionError(
                f"--nodes {self.nodes_per_group} times --groups {self.groups}: {NODES_MAX} brokers at most, "
                "each is a process of this machine"
            )
        highest = self.base_port + 16 + 10 * (self.nodes_per_group * self.groups - 1)
        if self.base_port < 1 or highest > 65535:
            raise ClusterOptionError(
                f"--base-port {self.base_port} needs the ports up to {highest}: 1 is the first, 65535 the last"
            )
        for key in sorted(SECRET_KEYS & self.conf.keys()):
            raise ClusterOptionError(
                f"--conf {key}=…: others on this machine can read a command line; put the secret into a file and "
                f"give --conf {key}File=FILE"
            )
        for key in sorted(_OWN_TO_EACH & self.conf.keys()):
            raise ClusterOptionError(
                f"--conf {key}=…: each broker has its own here, by --base-port and --dir"
            )
        known = {node.id for node in self.nodes}
        for link in self.peer_dials:
            ends = link.split(":")
            if len(ends) != 2 or not set(ends) <= known or ends[0] == ends[1]:
                raise ClusterOptionError(
                    f"--peer-dial {link}=…: give FROM:TO with two of {', '.join(sorted(known))}, like n0:n1"
                )

    @property
    def namesrv(self) -> str:
        return f"{HOST}:{self.base_port}"

    @property
    def tls_dir(self) -> Path:
        return Path(self.dir) / "tls"

    @property
    def client_tls_file(self) -> str | None:
        """How clients reach the cluster; None: in plaintext."""
        return str(self.tls_dir / "client.properties") if self.tls else None

    @property
    def tls_conf(self) -> dict[str, str]:
        """Of the NameServer and all brokers: TLS and nothing else, with the certificate of this machine."""
        if not self.tls:
            return {}
        return {"tls.config.file": str(self.tls_dir / "localhost.properties"), "tls.server.mode": "enforcing"}

    @property
    def namesrv_conf_file(self) -> Path:
        return Path(self.dir) / NAMESRV / "namesrv.conf"

    @property
    def namesrv_log(self) -> Path:
        return Path(self.dir) / NAMESRV / "namesrv.log"

    @property
    def proxy_address(self) -> str | None:
        """None: the cluster has no proxy."""
        return f"{HOST}:{self.proxy_port}" if self.proxy else None

    @property
    def proxy_port(self) -> int:
        return self.base_port + 1

    @property
    def proxy_log(self) -> Path:
        return Path(self.dir) / PROXY / "proxy.log"

    @property
    def proxy_conf_file(self) -> Path:
        return Path(self.dir) / PROXY / "rmq-proxy.json"

    @property
    def nodes(self) -> list[NodeLayout]:
        made = []
        for k in range(self.nodes_per_group * self.groups):
            port = self.base_port + 10 * k
            made.append(
                NodeLayout(
                    id=f"n{k}",
                    group=f"RaftNode{k // self.nodes_per_group:02}",
                    listen_port=port + 10,
                    raft_port=port + 15,
                    http_port=port + 16,
                    dir=str(Path(self.dir) / f"n{k}"),
                )
            )
        return made

    def node(self, node_id: str) -> NodeLayout:
        for node in self.nodes:
            if node.id == node_id:
                return node
        raise ClusterOptionError(
            f"no node {node_id} in this cluster: it has {', '.join(node.id for node in self.nodes)}"
        )

    def ports(self) -> dict[int, str]:
        """Every port of the cluster, with who is to listen there."""
        ports = {self.base_port: NAMESRV}
        if self.proxy:
            ports[self.proxy_port] = PROXY
        for node in self.nodes:
            ports |= {node.listen_port: node.id, node.raft_port: node.id, node.http_port: node.id}
        return ports

    def broker_conf(self, node: NodeLayout) -> str:
        """The conf file in RocketMQ's properties format."""
        peers = [peer for peer in self.nodes if peer.group == node.group]
        lines = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": node.group,
            "brokerIP1": HOST,
            "bindAddress": HOST,
            "listenPort": str(node.listen_port),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(node.store_dir),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": node.group,
            "dLegerPeers": ";".join(f"{peer.id}-{peer.raft}" for peer in peers),
            "dLegerSelfId": node.id,
            "pyDLedgerHttpPort": str(node.http_port),
            **self.tls_conf,
            **({"pyDLedgerPeerTls": "enforcing"} if self.tls else {}),
        }
        dials = [
            f"{link.partition(':')[2]}={address}"
            for link, address in sorted(self.peer_dials.items())
            if link.partition(":")[0] == node.id
        ]
        if dials:
            lines["pyDLedgerPeerDial"] = ";".join(dials)
        return conf_text(lines | dict(self.conf))

    def namesrv_conf(self) -> str:
        """What is set about TLS for the brokers counts for it as well."""
        tls = self.tls_conf | {key: value for key, value in self.conf.items() if key.startswith("tls.")}
        return conf_text({"bindAddress": HOST, "listenPort": str(self.base_port), **tls})

    def proxy_conf(self) -> dict[str, str | int]:
        """The proxy's conf file as a value."""
        conf: dict[str, str | int] = {
            "namesrvAddr": self.namesrv,
            "grpcServerPort": self.proxy_port,
            "pyDLedgerBindAddress": HOST,
        }
        if self.tls:
            conf |= {
                **self.tls_conf,
                "tls.enable": "true",
                "tlsKeyPath": str(self.tls_dir / "localhost.key"),
                "tlsCertPath": str(self.tls_dir / "localhost.crt"),
            }
        return conf

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def conf_text(lines: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def layout_of_json(values: Mapping[str, Any]) -> ClusterLayout:
    return ClusterLayout(**values)


def parse_peer_dial(text: str) -> tuple[str, str]:
    """`n0:n1=127.0.0.1:7001` -> ("n0:n1", "127.0.0.1:7001")."""
    link, _, address = text.partition("=")
    try:
        dialled = str(parse_address(address))
    except AddressError:
        dialled = ""
    if not dialled or link.count(":") != 1:
        raise ClusterOptionError(f"--peer-dial {text}: write FROM:TO=HOST:PORT, like n0:n1=127.0.0.1:7001")
    return link, dialled


def lines_with_earlier(given: Mapping[str, str], earlier: Mapping[str, str]) -> dict[str, str]:
    """The conf lines of an `up` on a directory that has `earlier` ones: those stay. An empty value takes a line out."""
    return {key: value for key, value in {**earlier, **given}.items() if value}


def parse_conf_line(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ClusterOptionError(f"--conf {text}: write key=value, like flushDiskType=ASYNC_FLUSH")
    return key.strip(), value.strip()
