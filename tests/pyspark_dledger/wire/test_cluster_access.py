"""Who a query is to a cluster with access control and TLS: keys and trust come from files and the environment of each
process, and what is refused is named in one line."""

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from secured_cluster import BROKER, SECRETS, TOPIC, SecuredCluster, secured_cluster

from mqclient.errors import MQClientError
from pyspark_dledger.option_values import OptionError
from pyspark_dledger.wire.cluster_access import ClusterAccess
from pyspark_dledger.wire.cluster_look import ClusterLook
from pyspark_dledger.wire.entry_offset import LogRange
from pyspark_dledger.wire.entry_options import LogOptions, entry_options
from pyspark_dledger.wire.log_reader import LogReader, LogTask
from pyspark_dledger.wire.message_options import message_options
from pyspark_dledger.wire.message_rows import MessageSelection, range_batches
from pyspark_dledger.wire.message_sender import MessageSender, SendOptions, SinkMessage
from pyspark_dledger.wire.message_sink import sink_options
from pyspark_dledger.wire.message_source import MessageReader
from pyspark_dledger.wire.pull_options import PullOptions
from pyspark_dledger.wire.queue_range import Queue, QueueRange
from pyspark_dledger.wire.read_errors import AccessError, PullRefusedError, ReadTimeoutError

QUEUE = Queue(TOPIC, BROKER, 0)
TIMEOUT_MS = 20_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    with secured_cluster(tmp_path_factory.mktemp("secured")) as running:
        send(running.access(), 3)
        yield running


def send(access: ClusterAccess, count: int) -> None:
    messages = [SinkMessage(TOPIC, "", "UNIQ_KEY\x01k\x02", b"%d" % number) for number in range(count)]
    with closing(MessageSender(SendOptions(access, "p", TIMEOUT_MS))) as sender:
        assert sender.send(iter(messages)) == count


def read(access: ClusterAccess) -> list[bytes]:
    options = PullOptions(cluster=access, timeout_ms=TIMEOUT_MS)
    batches = range_batches(QueueRange(QUEUE, 0, 3), options, MessageSelection(("body",), inflate=True))
    return [row["body"] for batch in batches for row in batch.to_pylist()]


def plan(access: ClusterAccess) -> tuple[int, int]:
    with ClusterLook(access, TIMEOUT_MS) as look:
        return look.bounds([QUEUE])[QUEUE]


def entries(access: ClusterAccess) -> list[int]:
    with ClusterLook(access, TIMEOUT_MS) as look:
        bounds = look.committed(BROKER)
        part = LogRange(BROKER, bounds.begin_index, bounds.committed_index + 1)
        last = look.proof_at(BROKER, bounds.committed_index)
    options = LogOptions(cluster=access, timeout_ms=TIMEOUT_MS, followers_first=False)
    with closing(LogReader(options, LogTask(part, bounds.group_uuid, None, last))) as log:
        return [index for run in log.runs() for index in range(run.first_index, run.last_index + 1)]


WAYS: list[Callable[[ClusterAccess], object]] = [read, plan, lambda access: send(access, 1)]


@pytest.mark.slow
def test_query_comes_in_by_its_files(cluster: SecuredCluster) -> None:
    assert read(cluster.access()) == [b"0", b"1", b"2"]
    assert plan(cluster.access())[0] == 0
    found = entries(cluster.access("root"))
    assert found == list(range(len(found)))


@pytest.mark.slow
def test_query_comes_in_by_the_environment(cluster: SecuredCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDLEDGER_TLS_CONFIG_FILE", str(cluster.tls()))
    monkeypatch.setenv("PYDLEDGER_ACCESS_KEY", "app")
    monkeypatch.setenv("PYDLEDGER_SECRET_KEY", SECRETS["app"])
    access = ClusterAccess((cluster.namesrv,))
    assert read(access) == [b"0", b"1", b"2"]
    assert plan(access)[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS, ids=["read", "plan", "send"])
def test_refusal_is_told_at_once(cluster: SecuredCluster, way: Callable[[ClusterAccess], object]) -> None:
    for access, said in (
        (replace(cluster.access(), credentials_file=""), "16.* username cannot be null"),
        (cluster.access("forger"), "16.* check signature failed"),
        (
            cluster.access(authority="strangers"),
            "the certificate is not trusted: .*trustCertPath must have",
        ),
        (cluster.access("nobody"), "credentials file .*/nobody.keys: No such file or directory"),
        (
            cluster.access(authority="nobody"),
            "TLS config file .*/nobody.properties: No such file or directory",
        ),
    ):
        with pytest.raises((AccessError, MQClientError), match=said) as raised:
            way(access)
        assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_plaintext_where_tls_is_wanted_is_guessed(cluster: SecuredCluster) -> None:
    """A connection that ends may also be a restart, which is waited for."""
    options = PullOptions(cluster=replace(cluster.access(), tls_config_file=""), timeout_ms=1)
    with pytest.raises(ReadTimeoutError, match=r"it may take TLS only \(tls.server.mode=enforcing\)"):
        next(range_batches(QueueRange(QUEUE, 0, 3), options, MessageSelection(("body",), inflate=True)))


@pytest.mark.slow
def test_what_the_user_may_not_do_is_told_by_the_broker(cluster: SecuredCluster) -> None:
    options = PullOptions(cluster=cluster.access(), consumer_group="others", timeout_ms=TIMEOUT_MS)
    with pytest.raises(PullRefusedError, match="User:app has no permission to access Group:others"):
        next(range_batches(QueueRange(QUEUE, 0, 3), options, MessageSelection(("body",), inflate=True)))
    with pytest.raises(MQClientError, match="User:app has no permission to access Cluster:"):
        entries(cluster.access())


@pytest.mark.slow
@pytest.mark.spark
def test_spark_writes_and_reads_by_files_and_its_plan_shows_their_names_alone(
    cluster: SecuredCluster, spark: SparkSession
) -> None:
    access = cluster.access()
    options = {"namesrv": cluster.namesrv, "credentialsFile": access.credentials_file}
    options["tlsConfigFile"] = access.tls_config_file
    rows = spark.createDataFrame([("from spark",)], "body string")
    rows.write.format("dledger").mode("append").options(topic=TOPIC, **options).save()
    read = spark.read.format("dledger").options(subscribe=TOPIC, columns="body", **options).load()
    assert b"from spark" in {bytes(row.body) for row in read.collect()}
    plan = read._jdf.queryExecution().toString()
    assert not [secret for secret in SECRETS.values() if secret in plan]


def test_options_and_plans_have_the_names_of_files_alone(tmp_path: Path) -> None:
    keys, tls = tmp_path / "keys", tmp_path / "tls.properties"
    keys.write_text("accessKey=app\nsecretKey=very-secret\n")
    tls.write_text("tls.client.authServer=false\n")
    given = {"namesrv": "h:1", "credentialsfile": str(keys), "TLSCONFIGFILE": str(tls)}
    wanted = ClusterAccess(("h:1",), str(keys), str(tls))
    options = message_options({**given, "subscribe": "T"}, ("body",), is_stream=False)
    assert options.pull.cluster == wanted
    assert entry_options({**given, "view": "entries"}, ("index",), is_stream=False).log.cluster == wanted
    assert sink_options({**given, "topic": "T"}, StructType().add("body", "string")).send.cluster == wanted
    assert b"very-secret" not in pickle.dumps(MessageReader(options))


@pytest.mark.parametrize("name", ["credentialsFile", "tlsConfigFile"])
def test_refuses_an_empty_name_of_a_file(name: str) -> None:
    with pytest.raises(OptionError, match=f"option {name} is empty"):
        message_options({"namesrv": "h:1", "subscribe": "T", name: " "}, ("body",), is_stream=False)


def test_a_secret_is_no_option_and_is_not_shown() -> None:
    given = {"namesrv": "h:1", "subscribe": "T", "secretKey": "very-secret"}
    with pytest.raises(OptionError, match="credentialsFile") as raised:
        message_options(given, ("body",), is_stream=False)
    assert "very-secret" not in str(raised.value)


def test_workers_read_keys_and_trust_without_an_event_loop(tmp_path: Path) -> None:
    keys, tls = tmp_path / "keys", tmp_path / "tls.properties"
    keys.write_text("accessKey=app\nsecretKey=very-secret\n")
    tls.write_text("tls.client.authServer=false\n")
    code = (
        "import sys; from pyspark_dledger.wire.cluster_access import ClusterAccess; "
        f"access = ClusterAccess((), {str(keys)!r}, {str(tls)!r}); assert access.signer() and access.tls(); "
        "print([name for name in ('asyncio', 'uvloop', 'mqclient') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
