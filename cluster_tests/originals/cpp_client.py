"""RocketMQ's C++ client, of 2019, as the PyPI package `rocketmq` brings it; driven by cpp/interop.py as processes."""

import fcntl
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from originals.java_client import ROOT, JavaProcess

PACKAGE = "rocketmq==0.4.4"
BUILD = ROOT / ".build" / "cpp"
PROGRAM = ROOT / "cluster_tests" / "cpp" / "interop.py"


@cache
def why_not() -> str | None:
    """The reason why the client cannot be had or loaded here, or None."""
    try:
        _install()
        _run(str(_python()), "-c", "import rocketmq.client")
    except (subprocess.SubprocessError, OSError) as error:
        output = getattr(error, "stderr", None) or str(error)
        return f"{PACKAGE}: {output.strip().splitlines()[-1]}"
    return None


def _install() -> None:
    """Once, into an environment of its own below .build/cpp."""
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = BUILD / ".package"
        if stamp.exists() and stamp.read_text() == PACKAGE and _python().exists():
            return
        _run(sys.executable, "-m", "venv", "--clear", str(BUILD / "venv"))
        _run(str(_python()), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE)
        stamp.write_text(PACKAGE)


def _python() -> Path:
    return BUILD / "venv" / "bin" / "python"


def _run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=300, capture_output=True, text=True)


@dataclass(frozen=True)
class CppClient:
    """`work` takes its logs, which it writes into the home directory."""

    work: Path

    def start(self, *arguments: str) -> JavaProcess:
        return JavaProcess(["env", f"HOME={self.work}", str(_python()), str(PROGRAM), *arguments], self.work)

    def send(self, namesrv: str, topic: str, count: int, prefix: str, *tags: str) -> JavaProcess:
        return self.start("send", namesrv, topic, str(count), prefix, *tags)

    def send_orderly(self, namesrv: str, topic: str, count: int, shards: int) -> JavaProcess:
        return self.start("send-orderly", namesrv, topic, str(count), str(shards))

    def push(
        self,
        namesrv: str,
        topic: str,
        group: str,
        tags: str = "*",
        *,
        failures: int = 0,
        orderly: bool = False,
    ) -> JavaProcess:
        """A consumer, until its input closes. Each message fails `failures` times before it is consumed."""
        return self.start("push-orderly" if orderly else "push", namesrv, topic, group, tags, str(failures))
