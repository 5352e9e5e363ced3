"""The commands on a real cluster of one broker: what a user types and sees."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mq.cluster import Cluster
from mq.cluster_layout import ClusterLayout
from mq.cluster_wait import wait_serving
from mq.front_door import COMMANDS, GROUPS, SERVERS, make_app
from mq.processes import listening_ports

MQ = [sys.executable, "-c", "from mq.__main__ import main; main()"]


def mq(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MQ, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


# Each look is a process of its own, which takes the time between two looks.
LOOKS_MAX = 100


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    taken = listening_ports()
    bases = range(24_000, 27_000, 100)
    base = next(base for base in bases if taken.isdisjoint(ClusterLayout(dir="", base_port=base).ports()))
    directory = tmp_path_factory.mktemp("cluster")
    made = Cluster.up(ClusterLayout(dir=str(directory), nodes_per_group=1, base_port=base))
    try:
        wait_serving(made, 30)
        yield made
    finally:
        made.down()


@pytest.mark.slow
def test_what_is_produced_is_consumed_with_its_keys_and_tags(cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    lines = "".join(f"k{i}\t{'even' if i % 2 == 0 else 'odd'}\tline {i}\n" for i in range(10))
    produced = mq(
        "produce", "-n", namesrv, "--topic", "Lines", "--keys-from", "column:1", "--tags-from", "column:2", "--json",
        stdin=lines,
    )  # fmt: skip
    assert produced.returncode == 0, produced.stderr
    summary = json.loads(produced.stdout)
    assert (summary["sent"], summary["acknowledged"], summary["unknown"]) == (10, 10, 0)

    consumed = mq(
        "consume", "-n", namesrv, "--topic", "Lines", "--group", "evens", "--from", "first", "--tags", "even",
        "--count", "5", "--json",
    )  # fmt: skip
    assert consumed.returncode == 0, consumed.stderr
    *messages, last = map(json.loads, consumed.stdout.splitlines())
    assert sorted(message["keys"] for message in messages) == ["k0", "k2", "k4", "k6", "k8"]
    assert {message["tags"] for message in messages} == {"even"}
    assert last["summary"]["received"] == 5

    selected = mq(
        "consume", "-n", namesrv, "--topic", "Lines", "--group", "some", "--from", "first", "--count", "3",
        "--sql", "KEYS IN ('k1', 'k2', 'k3', 'k4') AND TAGS = 'odd' OR KEYS ENDSWITH '9' LIMIT 3",
    )  # fmt: skip
    assert selected.returncode == 0, selected.stderr
    assert sorted(line.split()[0] for line in selected.stdout.splitlines()) == ["k1", "k3", "k9"]
    assert "only the part in front of 'LIMIT 3' counts" in selected.stderr


@pytest.mark.slow
def test_a_reader_that_broadcasts_keeps_its_offsets_at_home(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    namesrv = cluster.layout.namesrv
    assert mq("produce", "-n", namesrv, "--topic", "All", stdin="a\nb\n").returncode == 0
    read = ("consume", "-n", namesrv, "--topic", "All", "--group", "each", "--from", "first", "--broadcast")
    assert sorted(mq(*read, "--count", "2").stdout.split()) == ["a", "b"]
    assert len(list(tmp_path.glob(".rocketmq_offsets/*@DEFAULT/each/offsets.json"))) == 1
    assert mq("produce", "-n", namesrv, "--topic", "All", stdin="c\n").returncode == 0
    assert mq(*read, "--strategy", "circle", "--count", "1").stdout == "c\n"


@pytest.mark.slow
def test_a_reader_that_ends_in_the_middle_goes_on_there(cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    make_topic(namesrv, "One", queues=1)
    assert mq("produce", "-n", namesrv, "--topic", "One", stdin="a\nb\nc\nd\ne\n").returncode == 0
    read = ("consume", "-n", namesrv, "--topic", "One", "--group", "g", "--from", "first", "--count")
    assert mq(*read, "2").stdout == "a\nb\n"
    progress_of_one_queue(namesrv, "g", "One", consumer_offset=2)
    assert mq(*read, "3").stdout == "c\nd\ne\n"
    row = progress_of_one_queue(namesrv, "g", "One", consumer_offset=5)
    assert (row["broker"], row["queue"], row["broker_offset"], row["diff"]) == ("RaftNode00", 0, 5, 0)


def make_topic(namesrv: str, topic: str, *, queues: int) -> None:
    """Returns when the NameServer knows it, which the broker tells after it has answered."""
    made = mq("admin", "updateTopic", "-n", namesrv, "-t", topic, "-r", str(queues), "-w", str(queues))
    assert made.returncode == 0, made.stderr
    for _ in range(LOOKS_MAX):
        if mq("admin", "topicRoute", "-n", namesrv, "-t", topic).returncode == 0:
            return
    raise AssertionError(f"the NameServer never heard of topic {topic}")


def progress_of_one_queue(namesrv: str, group: str, topic: str, *, consumer_offset: int) -> dict[str, Any]:
    """Once it has come there: a reader's last commit that is not answered within 3 s may be applied when the reader has
    ended."""
    for _ in range(LOOKS_MAX):
        told = mq("admin", "consumerProgress", "-n", namesrv, "-g", group, "-t", topic, "--json")
        assert told.returncode == 0, told.stderr
        (row,) = json.loads(told.stdout)
        if row["consumer_offset"] == consumer_offset:
            return dict(row)
    raise AssertionError(f"group {group} is not at {consumer_offset}: {row}")


@pytest.mark.slow
def test_acknowledgements_are_held_against_the_files_of_a_broker_that_runs(
    cluster: Cluster, tmp_path: Path
) -> None:
    history, store = tmp_path / "history", str(cluster.layout.node("n0").store_dir)
    produced = mq(
        "produce",
        "-n",
        cluster.layout.namesrv,
        "--topic",
        "Acks",
        "--history",
        str(history),
        stdin="a\nb\nc\n",
    )
    assert produced.returncode == 0, produced.stderr
    committed = str(status_of_leader(cluster)["committed"])
    validated = (
        "validate",
        store,
        "--no-spark",
        "--committed",
        committed,
        "--history",
        str(history),
        "--json",
        "-",
    )
    sound = mq(*validated)
    assert sound.returncode == 0, sound.stdout + sound.stderr
    told = json.loads(sound.stdout)
    assert (told["acknowledged"], told["acknowledged_found"], told["findings"]) == (3, 3, [])

    first, *rest = history.read_text().splitlines(keepends=True)
    history.write_text(first.replace(json.loads(first)["msg_id"], "NOWHERE") + "".join(rest))
    lost = mq(*validated)
    assert lost.returncode == 10, lost.stderr
    told = json.loads(lost.stdout)
    assert (told["acknowledged"], told["acknowledged_found"]) == (3, 2)
    (finding,) = told["findings"]
    assert (finding["kind"], finding["topic"]) == ("lost acknowledged message", "Acks")
    assert finding["first_offset"] == json.loads(first)["queue_offset"]


def status_of_leader(cluster: Cluster) -> dict[str, Any]:
    """Once the one broker leads and says so: on a busy machine it may be too slow to answer at first."""
    for _ in range(LOOKS_MAX):
        told = mq("cluster", "status", "--dir", cluster.layout.dir, "--json")
        assert told.returncode == 0, told.stderr
        (node,) = json.loads(told.stdout)["nodes"]
        if node["role"] == "LEADER":
            return dict(node)
    raise AssertionError(f"it does not lead: {node}")


@pytest.mark.slow
def test_the_example_program_runs(cluster: Cluster) -> None:
    program = Path(__file__).resolve().parent.parent.parent / "examples" / "greetings.py"
    command = [sys.executable, str(program), cluster.layout.namesrv]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "hallo: queue" in done.stdout
    assert sorted(done.stdout.splitlines()[4:]) == ["en: hello", "ja: こんにちは"]


@pytest.mark.slow
def test_admin_tells_of_cluster_topics_and_queues(cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    make_topic(namesrv, "Two", queues=2)
    (broker,) = json.loads(mq("admin", "clusterList", "-n", namesrv, "--json").stdout)
    leader = cluster.layout.node("n0").listen
    assert (broker["cluster"], broker["broker"], broker["id"], broker["address"], broker["active"]) == (
        "DefaultCluster", "RaftNode00", 0, leader, True,
    )  # fmt: skip
    assert {"topic": "Two"} in json.loads(mq("admin", "topicList", "-n", namesrv, "--json").stdout)
    (route,) = json.loads(mq("admin", "topicRoute", "-n", namesrv, "-t", "Two", "--json").stdout)
    assert (route["leader"], route["read_queues"], route["write_queues"]) == (leader, 2, 2)
    status = json.loads(mq("admin", "topicStatus", "-n", namesrv, "-t", "Two", "--json").stdout)
    assert [(row["queue"], row["min"], row["max"]) for row in status] == [(0, 0, 0), (1, 0, 0)]


@pytest.mark.slow
def test_standard_input_without_a_line_sends_nothing_and_says_so() -> None:
    ended = mq("produce", "-n", "127.0.0.1:1", "--topic", "T", "--json", stdin="")
    assert ended.returncode == 0
    assert ended.stderr == "mq: standard input has no line that is not empty: nothing was sent\n"
    assert json.loads(ended.stdout)["sent"] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("produce", "-n", "nowhere", "--topic", "T"), "NameServer address 'nowhere'"),
        (("produce", "-n", "127.0.0.1:1", "--topic", "T", "--delay", "soon"), "write 500ms, 90s"),
        (
            ("produce", "-n", "127.0.0.1:1", "--topic", "T", "--file", "/no/such/file"),
            "/no/such/file: No such file",
        ),
        (("produce", "-n", "127.0.0.1:1", "--topic", "T", "--file", "/dev/null"), "nothing was sent"),
        (("produce", "-n", "127.0.0.1:1", "--topic", "T", "--keys-from", "x"), "column:N"),
        (
            ("produce", "-n", "127.0.0.1:1", "--topic", "T", "--timeout-s", "nan"),
            "--timeout-s must be above 0",
        ),
        (("produce", "-n", "127.0.0.1:1", "--topic", "T", "--rate", "inf"), "none of them endless"),
        (("consume", "-n", "127.0.0.1:1", "--topic", "T", "--group", "g", "--idle-s", "nan"), "--idle-s"),
        (("consume", "-n", "127.0.0.1:1", "--topic", "T", "--group", "g", "--from", "x"), "ms since 1970"),
        (
            ("consume", "-n", "127.0.0.1:1", "--topic", "T", "--group", "g", "--sql", "price >> 5"),
            "--sql 'price >> 5': column 8: a property, a number, a string or ( is needed, and '>' is there",
        ),
        (
            ("consume", "-n", "127.0.0.1:1", "--topic", "T", "--group", "g", "--sql", "a = 1", "--tags", "A"),
            "--tags or --sql, not both",
        ),
        (
            ("admin", "topicList", "-n", "127.0.0.1:1"),
            "no NameServer answered (127.0.0.1:1: Connection refused): start it, or name another",
        ),
        (("cluster", "status", "--dir", "/nonexistent"), "no cluster in"),
        (("cluster", "up", "--dir", __file__), "is a file: name a directory"),
        (("cluster", "up", "--dir", "/nonexistent", "--nodes", "99"), "9 brokers in a group at most"),
        (("cluster", "up", "--dir", "/nonexistent", "--groups", "99"), "27 brokers at most"),
        (("validate", "/nonexistent", "--no-spark"), "is no directory"),
        (("validate", "/nonexistent", "--no-spark", "--html", "-"), "--html - : the page goes into a file"),
        (("quickstart", "/no/such/file"), "No such file"),
    ],
)
def test_a_mistake_is_one_clear_line(arguments: tuple[str, ...], reason: str) -> None:
    done = mq(*arguments)
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_history_never_overwrites_the_file_that_is_sent(tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_text("a\n")
    (tmp_path / "link").symlink_to(file)
    given = ("produce", "-n", "127.0.0.1:1", "--topic", "T", "--timeout-s", "0.1", "--file", str(file))
    for history in (file, tmp_path / "link"):
        done = mq(*given, "--history", str(history))
        assert done.returncode == 1
        assert "would overwrite the file that is sent" in done.stderr
        assert file.read_text() == "a\n"


@pytest.mark.slow
def test_a_reader_of_the_output_that_has_seen_enough_is_no_trouble() -> None:
    code = "from mq.console import print_json, user_errors\n"
    code += "with user_errors(): print_json(['x' * 100] * 5000)"
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            stdout=write_end,
            stderr=subprocess.PIPE,
            text=True,
            timeout=30,
            check=False,
        )
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
def test_an_interrupted_producer_says_what_it_has_sent(cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a child would inherit that it is ignored
    try:
        producer = subprocess.Popen(
            [*MQ, "produce", "-n", namesrv, "--topic", "Interrupted", "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with producer:
        assert producer.stdin is not None
        producer.stdin.write("first\n")
        producer.stdin.flush()
        came = mq(
            "consume",
            "-n",
            namesrv,
            "--topic",
            "Interrupted",
            "--group",
            "g",
            "--from",
            "first",
            "--count",
            "1",
        )
        assert came.stdout.splitlines() == ["first"]
        producer.send_signal(signal.SIGINT)
        stdout, stderr = producer.communicate()
    assert json.loads(stdout)["acknowledged"] in (0, 1), "the answer may have been on its way"
    assert stderr == "mq: interrupted: of the lines only what is counted here is known\n"
    assert producer.returncode == 130


@pytest.mark.slow
def test_a_line_that_is_too_long_for_a_message_is_named_by_its_number(cluster: Cluster) -> None:
    done = mq("produce", "-n", cluster.layout.namesrv, "--topic", "T", stdin="\n" + "a" * 4_194_305 + "\n")
    assert done.returncode == 1
    assert done.stderr == "mq: line 1 is longer than 4194304 bytes, the most that `mq produce` sends\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "option", "reason"),
    [
        ("not json", "json:id", "line 3 is not JSON"),
        ('{"id": "\\u0001"}', "json:id", "line 3: a key, tag or property holds a character \\x01"),
        (
            '{"id": "' + "k" * 32_800 + '"}',
            "json:id",
            "line 3: keys, tags and properties have more than 32767",
        ),
    ],
)
def test_what_becomes_of_the_lines_before_one_that_is_wrong_is_told(
    cluster: Cluster, tmp_path: Path, line: str, option: str, reason: str
) -> None:
    history = tmp_path / "history"
    given = ("produce", "-n", cluster.layout.namesrv, "--topic", "T", "--keys-from", option)
    lines = ['{"id": 1}', '{"id": 2}', line, '{"id": 4}']
    done = mq(*given, "--history", str(history), "--json", stdin="\n".join(lines))
    assert done.returncode == 1
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert json.loads(done.stdout)["sent"] == 2
    assert [json.loads(noted)["line"] for noted in history.read_text().splitlines()] == [1, 2]


@pytest.mark.slow
def test_a_send_that_nobody_acknowledges_is_counted_and_fails_the_command(cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    made = mq("admin", "updateTopic", "-n", namesrv, "-c", "DefaultCluster", "-t", "ReadOnly", "-p", "4")
    assert made.returncode == 0, made.stderr
    given = ("produce", "-n", namesrv, "--topic", "ReadOnly", "--timeout-s", "0.1", "--json")
    done = mq(*given, stdin="a\nb\n")
    assert done.returncode == 1
    summary = json.loads(done.stdout)
    assert (summary["sent"], summary["acknowledged"], summary["refused"]) == (2, 0, 2)
    assert "topic ReadOnly" in summary["first_trouble"]
    told = "mq: 2 of 2 messages were not acknowledged (0 unknown, 2 refused); the first: no acknowledgement in time"
    assert done.stderr.startswith(told)
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_history_that_cannot_be_written_hides_no_send(cluster: Cluster) -> None:
    given = ("-n", cluster.layout.namesrv, "--topic", "T", "--history", "/dev/full", "--json")
    done = mq("produce", *given, stdin="a\nb\n")
    assert done.returncode == 1
    assert json.loads(done.stdout)["sent"] == 2
    assert done.stderr.startswith("mq: /dev/full: No space left on device")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_reader_that_never_learned_of_its_topic_fails(cluster: Cluster) -> None:
    namesrv = cluster.layout.namesrv
    done = mq("consume", "-n", namesrv, "--topic", "Nowhere", "--group", "g", "--idle-s", "0.1")
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last == f"mq: no NameServer at {namesrv} told of a topic Nowhere: nothing was read"


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("produce", "--topic", "T"),
        ("consume", "--topic", "T", "--group", "g"),
        ("consume", "--topic", "T", "--group", "g", "--idle-s", "9"),
    ],
)
def test_where_nobody_is_alive_clients_end_with_one_sentence(arguments: tuple[str, ...]) -> None:
    done = mq(*arguments, "-n", "127.0.0.1:1", stdin="a\n")
    assert done.returncode == 1
    assert done.stderr == (
        "mq: no NameServer answered (127.0.0.1:1: Connection refused): start it, or name another with -n\n"
    )
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("command", ["produce", "consume"])
def test_clients_ask_the_name_server_of_the_environment(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    done = mq(command, "--topic", "T", *(("--group", "g") if command == "consume" else ()), stdin="a\n")
    assert done.returncode == 1
    assert done.stderr.startswith("mq: no NameServer answered (127.0.0.1:1: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "needless"),
    [
        ("import mq.server_entry, broker.server, namesrv.namesrv", "typer rich aiohttp mqclient"),
        ("from mq.front_door import make_app; make_app('cluster')", "mq.admin mq.quickstart pyspark_dledger"),
        ("from mq.front_door import make_app; make_app('namesrv')", "mq.cluster mqclient rich.table"),
        (
            "from mq.admin.__main__ import find_command; find_command('topicList')",
            "typer rich mq.admin.groups",
        ),
    ],
    ids=["a server", "a command", "what becomes a server", "an admin command"],
)
def test_a_process_loads_no_library_that_it_does_not_use(statement: str, needless: str) -> None:
    code = f"import sys; {statement}; print([name for name in {needless.split()} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout == "[]\n", done.stderr


def test_each_command_is_told_of_with_all_others_and_is_there_alone() -> None:
    everything = CliRunner().invoke(make_app(), ["--help"]).stdout
    assert "admin" in everything.split()
    for name in (*COMMANDS, *GROUPS, *SERVERS):
        assert name in everything.split()
        alone = CliRunner().invoke(make_app(name), [name, "--help"])
        assert alone.exit_code == 0
        assert name in alone.stdout.split("Usage")[1].split()
