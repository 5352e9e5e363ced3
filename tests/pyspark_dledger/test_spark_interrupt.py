"""Ctrl-C while Spark starts leaves no JVM behind."""

import os
import signal
from types import SimpleNamespace

import pyspark.java_gateway
import pytest

from pyspark_dledger import spark_session


def test_an_interrupt_while_the_jvm_starts_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = SimpleNamespace()
    ended: list[object] = []

    def launch(_: object) -> object:
        os.kill(os.getpid(), signal.SIGINT)
        return gateway

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(pyspark.java_gateway, "launch_gateway", launch)
    monkeypatch.setattr(spark_session, "_end_jvm", ended.append)
    monkeypatch.setattr(
        spark_session, "find_java", lambda: spark_session.Java(spark_session.Path("/none"), 17)
    )
    with pytest.raises(KeyboardInterrupt), spark_session._own_session("local[1]", "test", {}):
        pytest.fail("it began")
    assert ended == [gateway]
    assert signal.getsignal(signal.SIGINT) is before
