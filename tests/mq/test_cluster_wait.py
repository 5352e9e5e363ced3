"""Waiting for a cluster ends in time, whatever the NameServer does."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from mq import cluster_wait
from mq.cluster import Cluster, ClusterError
from mq.cluster_layout import ClusterLayout
from remoting.errors import RemotingConnectError, RemotingTimeoutError


class SilentNamesrv:
    """Fulfils BlockingConnection, on a clock of its own."""

    def __init__(self, *, takes_connections: bool) -> None:
        self.now = 1000.0
        self._takes_connections = takes_connections

    def __call__(self, address: str, timeout_s: float, tls: object) -> "SilentNamesrv":
        if not self._takes_connections:
            self.pass_time(timeout_s)
            raise RemotingConnectError(address)
        return self

    def call(self, code: int, fields: object, timeout_s: float) -> None:
        self.pass_time(timeout_s)
        raise RemotingTimeoutError("no answer")

    def close(self) -> None:
        pass

    def pass_time(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("takes_connections", [True, False])
def test_silent_namesrv_is_not_waited_for_beyond_the_deadline(
    takes_connections: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namesrv = SilentNamesrv(takes_connections=takes_connections)
    monkeypatch.setattr(cluster_wait, "BlockingConnection", namesrv)
    clock = SimpleNamespace(monotonic=lambda: namesrv.now, sleep=namesrv.pass_time)
    monkeypatch.setattr(cluster_wait, "time", clock)
    begin = namesrv.now
    with pytest.raises(ClusterError, match="not every group serves after 4 s"):
        cluster_wait.wait_serving(Cluster(ClusterLayout(dir=str(tmp_path))), 4)
    assert begin + 4 <= namesrv.now < begin + 4 + 3 * cluster_wait.POLL_INTERVAL_S
