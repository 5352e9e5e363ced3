"""RocketMQ's own NameServer, broker and gRPC proxy as processes beside ours."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from local_cluster import port_block
from originals.java_client import QUICK_START, class_path

VERSION = "5.5.0"
BROKER_NAME = "broker-java"
# What RocketMQ reaches into on Java 9 and later.
_PACKAGES = ("java.nio", "java.lang", "java.util", "java.net", "sun.nio.ch", "jdk.internal.ref")
_OPEN = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES]
_EXPORT = [
    f"--add-exports=java.base/{package}=ALL-UNNAMED"
    for package in ("jdk.internal.ref", "sun.nio.ch", "jdk.internal.misc")
]


class _JavaServer:
    """One process; `with` starts it, and ends it by pid. Its settings, home and log lie in `work`."""

    options: tuple[str, ...] = ()  # of the JVM

    def __init__(self, work: Path, name: str, main_class: str, conf: str, *, conf_option: str = "-c") -> None:
        (work / "home" / "conf").mkdir(parents=True, exist_ok=True)
        self._work = work
        self._name = name
        self._main_class = main_class
        self._conf = work / f"{name}.conf"
        self._conf.write_text(conf)
        self._conf_option = conf_option
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log_file(self) -> Path:
        return self._work / f"{self._name}.log"

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        home = self._work / "home"
        options = [
            *QUICK_START,
            *("-Xms256m", "-Xmx512m", "-XX:MaxDirectMemorySize=1g"),
            f"-Duser.home={self._work}",
            *self.options,
        ]
        logging = f"-Drmq.logback.configurationFile=rmq.{self._name}.logback.xml"
        jars = class_path(VERSION, server=True)
        command = ["java", *_OPEN, *_EXPORT, *options, f"-Drocketmq.home.dir={home}", logging, "-cp", jars]
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, self._main_class, self._conf_option, str(self._conf)],
                stdout=log,
                stderr=log,
                env={**os.environ, "ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home)},
                start_new_session=True,  # a Ctrl-C in the terminal is not meant for it
            )

    def stop(self) -> None:
        """Killed, as nobody looks at its store any more: an orderly end takes the broker up to 20 s."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop_orderly(self) -> None:
        """SIGTERM; returns when it has written what it writes at its end."""
        assert self._process is not None, "it was started"
        self._process.terminate()
        self._process.wait(120)
        self._process = None

    def __enter__(self) -> None:
        self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class JavaNameServer(_JavaServer):
    def __init__(self, work: Path, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        conf = f"listenPort={port}\nbindAddress=127.0.0.1\n"
        super().__init__(work, "namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", conf)


class JavaBroker(_JavaServer):
    """A DLedger group of one member, `self_id`, on `store`, or with enableDLegerCommitLog=false in `conf` a plain
    broker; takes the ports from base_port + 10 to base_port + 15.
    """

    def __init__(
        self,
        work: Path,
        store: Path,
        namesrv: str,
        base_port: int,
        self_id: str = "n0",
        conf: dict[str, str] | None = None,
    ) -> None:
        listen = base_port + 10
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": BROKER_NAME,
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(listen),
            "haListenPort": str(listen + 1),
            "namesrvAddr": namesrv,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": BROKER_NAME,
            "dLegerPeers": f"{self_id}-127.0.0.1:{listen + 5}",
            "dLegerSelfId": self_id,
            **(conf or {}),
        }
        self.address = f"127.0.0.1:{settings['listenPort']}"
        lines = "".join(f"{key}={value}\n" for key, value in settings.items())
        super().__init__(work, "broker", "org.apache.rocketmq.broker.BrokerStartup", lines)


class JavaProxy(_JavaServer):
    """RocketMQ's gRPC proxy before the brokers of a NameServer; takes the port and the one after it. It ends by itself
    when it finds no broker at its start.
    """

    def __init__(self, work: Path, namesrv: str, port: int, **settings: object) -> None:
        self.address = f"127.0.0.1:{port}"
        settings |= {
            "rocketMQClusterName": "DefaultCluster",
            "proxyMode": "CLUSTER",
            "namesrvAddr": namesrv,
            "grpcServerPort": port,
            "remotingListenPort": port + 1,
            "localServeAddr": "127.0.0.1",
        }
        main_class = "org.apache.rocketmq.proxy.ProxyStartup"
        super().__init__(work, "proxy", main_class, json.dumps(settings), conf_option="-pc")


class Elected(NamedTuple):
    term: int
    leader: str
    voters: frozenset[str]


class JavaGroup:
    """A NameServer and a DLedger group of Java's brokers on `stores`, by member id."""

    def __init__(
        self,
        work: Path,
        stores: Mapping[str, Path],
        base_port: int,
        conf: Mapping[str, str],
        dials: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """`dials`: (dialler, peer), and what it is to dial instead of the peer."""
        ports = {member_id: base_port + 10 * number for number, member_id in enumerate(stores, 1)}
        self.peers = {member_id: f"127.0.0.1:{port + 5}" for member_id, port in ports.items()}
        self.stores = stores
        self.name_server = JavaNameServer(work / "namesrv", base_port)
        self.namesrv = self.name_server.address
        self.brokers = {
            member_id: JavaBroker(
                work / member_id,
                stores[member_id],
                self.namesrv,
                base_port,
                member_id,
                {
                    **conf,
                    "listenPort": str(port),
                    "haListenPort": str(port + 1),
                    "dLegerPeers": self._peers_of(member_id, dials or {}),
                },
            )
            for member_id, port in ports.items()
        }

    def _peers_of(self, member_id: str, dials: Mapping[tuple[str, str], str]) -> str:
        return ";".join(
            f"{peer}-{dials.get((member_id, peer), address)}" for peer, address in self.peers.items()
        )

    def term(self) -> int:
        return max((term for _, term, _ in self._votes()), default=0)

    def leader(self) -> str | None:
        elected = self.elected()
        return elected.leader if elected is not None else None

    def elected(self) -> Elected | None:
        """For whom a majority has voted in the newest term."""
        votes = self._votes()
        newest = max((term for _, term, _ in votes), default=0)
        voters: dict[str, set[str]] = {}
        for member_id, term, voted_for in votes:
            if term == newest:
                voters.setdefault(voted_for, set()).add(member_id)
        majority = len(self.stores) // 2 + 1
        return next(
            (
                Elected(newest, leader, frozenset(who))
                for leader, who in voters.items()
                if len(who) >= majority
            ),
            None,
        )

    def _votes(self) -> list[tuple[str, int, str]]:
        """(member, term, whom it voted for)."""
        votes = []
        for member_id, store in self.stores.items():
            with contextlib.suppress(FileNotFoundError):
                lines = (store / f"dledger-{member_id}" / "currterm").read_text().splitlines()
                values = dict(line.split("=", 1) for line in lines if "=" in line)
                if values.get("voteLeader"):
                    votes.append((member_id, int(values["currTerm"]), values["voteLeader"]))
        return votes


@contextlib.contextmanager
def java_group(work: Path, stores: Mapping[str, Path], conf: Mapping[str, str]) -> Iterator[JavaGroup]:
    """Running; whatever of it still runs at the end is killed."""
    with port_block() as base_port:
        group = JavaGroup(work, stores, base_port, conf)
        with contextlib.ExitStack() as stack:
            for server in (group.name_server, *group.brokers.values()):
                stack.enter_context(server)
            yield group
