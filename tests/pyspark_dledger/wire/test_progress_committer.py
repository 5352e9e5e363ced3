"""A group is told how far a query is: only what has changed, and again what could not be told."""

import json
import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from mqclient import NoMasterError
from pyspark_dledger.option_values import OptionError
from pyspark_dledger.progress_committer import ProgressCommitter
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.message_offset import MessageOffset
from pyspark_dledger.wire.queue_range import Queue

A, B = Queue("T", "g0", 0), Queue("T", "g0", 1)


class NotingLook:
    def __init__(self) -> None:
        self.told: list[dict[Queue, int]] = []
        self.is_away = False

    def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        assert group == "spark"
        if self.is_away:
            raise NoMasterError("no leader now")
        self.told.append(dict(offsets))

    def __exit__(self, *_: object) -> None:
        self.is_away = True


def test_group_is_told_what_has_changed(caplog: pytest.LogCaptureFixture) -> None:
    committer, look = ProgressCommitter("127.0.0.1:9876", "spark", "orders"), NotingLook()
    committer._look = look  # type: ignore[assignment]

    def commit(offsets: dict[Queue, int]) -> None:
        committer.commit(json.dumps(MessageOffset(offsets, {A: 0}).to_json()))

    commit({A: 5, B: 2})
    commit({A: 9, B: 2})
    look.is_away = True
    commit({A: 10, B: 2})
    assert "progress of query orders was not committed to group spark: no leader now" in caplog.text
    look.is_away = False
    commit({A: 10, B: 3})
    assert look.told == [{A: 5, B: 2}, {A: 9}, {A: 10, B: 3}]


def test_last_batch_is_told_although_spark_says_it_after_the_query_has_ended() -> None:
    committer, look = ProgressCommitter("127.0.0.1:9876", "spark", "orders"), NotingLook()
    committer._look = look  # type: ignore[assignment]
    run: Any = SimpleNamespace(name="orders", runId=uuid4())
    end = json.dumps(MessageOffset({A: 5}, {A: 0}).to_json())
    progress: Any = SimpleNamespace(
        progress=SimpleNamespace(name="orders", sources=[SimpleNamespace(endOffset=end)])
    )
    committer.onQueryStarted(run)

    def tell() -> None:
        committer.onQueryProgress(progress)
        committer.onQueryTerminated(run)

    spark = threading.Thread(target=tell)
    spark.start()
    committer.__exit__(None, None, None)
    spark.join()
    assert look.told == [{A: 5}]


@pytest.mark.parametrize("end", ["null", "7", '{"logOffset": 3}', "no JSON", '{"v": 1}'])
def test_offsets_of_other_sources_are_passed_over(end: str) -> None:
    committer, look = ProgressCommitter("127.0.0.1:9876", "spark", "orders"), NotingLook()
    committer._look = look  # type: ignore[assignment]
    committer.commit(end)
    assert look.told == []


def test_refuses_a_group_that_no_broker_would_take() -> None:
    with pytest.raises(OptionError, match="group 'a b'"):
        ProgressCommitter("127.0.0.1:9876", "a b", "orders")


def test_committer_comes_in_by_files_as_a_source_does() -> None:
    committer = ProgressCommitter(
        "h:1", "spark", "orders", credentials_file="keys", tls_config_file="tls.properties"
    )
    assert committer._look._cluster == ClusterAccess(("h:1",), "keys", "tls.properties")
