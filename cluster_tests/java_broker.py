"""The real RocketMQ broker and NameServer, started over a store of ours as a one-member DLedger group."""

import os
import subprocess
from pathlib import Path

from java_client import class_path

VERSION = "5.5.0"
# What RocketMQ reaches into on Java 9 and later.
_PACKAGES = ("java.nio", "java.lang", "java.util", "java.net", "sun.nio.ch", "jdk.internal.ref")
_OPEN = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _PACKAGES]
_EXPORT = [
    f"--add-exports=java.base/{package}=ALL-UNNAMED"
    for package in ("jdk.internal.ref", "sun.nio.ch", "jdk.internal.misc")
]


class JavaBroker:
    """NameServer and one broker in DLedger mode on `store`; `with` ends both, by pid."""

    def __init__(self, work: Path, store: Path, base_port: int, self_id: str, conf: dict[str, str]) -> None:
        self.namesrv = f"127.0.0.1:{base_port}"
        self._work = work
        work.mkdir(parents=True, exist_ok=True)
        (work / "home" / "conf").mkdir(parents=True, exist_ok=True)
        self._namesrv_conf = work / "namesrv.conf"
        self._namesrv_conf.write_text(f"listenPort={base_port}\nbindAddress=127.0.0.1\n")
        listen = base_port + 10
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-java",
            "brokerIP1": "127.0.0.1",
            "bindAddress": "127.0.0.1",
            "listenPort": str(listen),
            "haListenPort": str(listen + 1),
            "namesrvAddr": self.namesrv,
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": "broker-java",
            "dLegerPeers": f"{self_id}-127.0.0.1:{listen + 5}",
            "dLegerSelfId": self_id,
            **conf,
        }
        self._broker_conf = work / "broker.conf"
        self._broker_conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> "JavaBroker":
        self._start("namesrv", "org.apache.rocketmq.namesrv.NamesrvStartup", self._namesrv_conf)
        self._start("broker", "org.apache.rocketmq.broker.BrokerStartup", self._broker_conf)
        return self

    def _start(self, name: str, main: str, conf: Path) -> None:
        home = self._work / "home"
        log = (self._work / f"{name}.log").open("wb")
        # As the client's: what these short runs compile well and collect in parallel, they do not earn back.
        quick_start = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options = [
            *quick_start,
            "-Xms256m",
            "-Xmx512m",
            "-XX:MaxDirectMemorySize=1g",
            f"-Duser.home={self._work}",
        ]
        logging = f"-Drmq.logback.configurationFile=rmq.{name}.logback.xml"
        jars = class_path(VERSION, server=True)
        command = ["java", *_OPEN, *_EXPORT, *options, f"-Drocketmq.home.dir={home}", logging, "-cp", jars]
        environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
        self._processes.append(
            subprocess.Popen([*command, main, "-c", str(conf)], stdout=log, stderr=log, env=environment)
        )
        log.close()

    def __exit__(self, *_: object) -> None:
        """Killed, as nobody looks at the store any more: an orderly end takes the broker up to 20 s."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
