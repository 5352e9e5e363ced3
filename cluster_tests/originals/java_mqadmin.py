"""Java's own mqadmin 5.5.0 in one JVM per test (java/MqAdmin.java)."""

import queue
import subprocess
import threading
from pathlib import Path

from originals.java_client import class_path

VERSION = "5.5.0"
_OPEN = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.nio")]


class JavaMqAdmin:
    """`with` starts it and ends it; run() gives what a sub-command printed, stack traces of failures included."""

    def __init__(self, namesrv: str, work: Path, *, credentials: tuple[str, str] | None = None) -> None:
        (work / "conf").mkdir(parents=True, exist_ok=True)
        if credentials is not None:
            tools = "accessKey: {}\nsecretKey: {}\n".format(*credentials)
            (work / "conf" / "tools.yml").write_text(tools)
        self._errors = (work / "mqadmin-stderr.log").open("w")
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Duser.home={work}"]
        options.append(f"-Drocketmq.home.dir={work}")
        self._process = subprocess.Popen(
            [
                "java",
                *_OPEN,
                *options,
                "-Drmq.logback.configurationFile=rmq.tools.logback.xml",
                f"-Drocketmq.namesrv.addr={namesrv}",
                "-cp",
                class_path(VERSION, server=True),
                "MqAdmin",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=work,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def run(self, *arguments: str, seconds: float = 60) -> str:
        assert self._process.stdin
        self._process.stdin.write("\t".join(arguments) + "\n")
        self._process.stdin.flush()
        printed: list[str] = []
        while True:
            line = self._lines.get(timeout=seconds)
            assert line is not None, f"mqadmin ended: {''.join(printed)}"
            if line == "END\n":
                return "".join(printed)
            printed.append(line)

    def __enter__(self) -> "JavaMqAdmin":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream:
                stream.close()
