"""`mq export` as it is typed: of recorded replicas of a Java group, and of a cluster that runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from golden_store import DLEDGER_STORE, NODES, unpack_store
from typer.testing import CliRunner, Result

from mq.cluster import Cluster
from mq.cluster_layout import ClusterLayout
from mq.cluster_wait import wait_serving
from mq.front_door import make_app
from mq.processes import listening_ports
from mq.proving import export as command

END_INDEX = 2110


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    root = unpack_store(
        DLEDGER_STORE, tmp_path_factory.mktemp("recorded"), lambda path: "/index/" not in path
    )
    return [str(root / node) for node in NODES]


def mq(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), arguments)


def mq_apart(*arguments: str, stdin: str = "") -> str:
    """In a process of its own; what it prints."""
    command = [sys.executable, "-m", "mq", *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_an_export_is_made_gone_on_with_and_proved_against_other_replicas(
    stores: list[str], tmp_path: Path
) -> None:
    into = str(tmp_path / "export")
    made = mq("export", "--to", "parquet", "--into", into, "--from", stores[0])
    assert made.exit_code == 0, made.output
    assert f"{into} ends with entry 2,110, the last one known to be committed" in made.stdout
    again = mq("export", "--to", "parquet", "--into", into, "--from", stores[1], "--json")
    assert json.loads(again.stdout) == {"exported": 0, "last_index": 2110, "committed_index": 2110}
    proved = mq("export", "verify", into, "--against", stores[1], "--against", stores[2])
    assert proved.exit_code == 0, proved.output
    assert "n2: 2,111 entries, 0 .. 2,110, make the same rows\n" in proved.stdout
    assert proved.stdout.splitlines()[-1].startswith("Proved: ")


@pytest.mark.slow
def test_a_changed_file_ends_with_status_10_and_is_named(stores: list[str], tmp_path: Path) -> None:
    into = tmp_path / "export"
    mq("export", "--to", "parquet", "--into", str(into), "--from", stores[0])
    (path,) = into.glob("part-*.parquet")
    path.write_bytes(path.read_bytes() + b"x")
    done = mq("export", "verify", str(into))
    assert done.exit_code == 10, done.output
    assert f"error: {path.name}: the file was changed: " in done.stdout
    told = json.loads(mq("export", "verify", str(into), "--json").stdout)
    assert not told["proved"]
    assert len(told["faults"]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--to", "csv", "--into", "{tmp}/e", "--from", "{store}"],
            "--to csv: it is one of parquet, delta, iceberg",
        ),
        (["--into", "{tmp}/e", "--from", "{store}"], "--to is missing: it is one of parquet"),
        (["--to", "parquet", "--from", "{store}"], "--into DIR is missing"),
        (["--to", "parquet", "--into", "{tmp}/e"], "give --from STORE"),
        (["--to", "parquet", "--into", "{tmp}/e", "--from", "{store}", "-n", "a:1"], "one of them"),
        (
            ["--to", "parquet", "--into", "{tmp}/e", "--from", "{store}", "--broker", "a"],
            "give --namesrv too",
        ),
        (["--to", "parquet", "--into", "{tmp}/e", "-n", "nonsense"], "option namesrv: "),
        (["--to", "parquet", "--into", "{tmp}/e", "--from", "{tmp}"], "is no replica"),
        (
            ["--to", "parquet", "--into", "{store}/e", "--from", "{store}"],
            "is in a store, which is only read",
        ),
        (["--to", "parquet", "--into", "{tmp}/e", "--from", "{store}", "--topic", ""], "--topic is empty"),
        (["--to", "parquet", "--into", "{tmp}/e", "--from", "{store}", "--every-s", "5"], "give both"),
        (
            ["--to", "delta", "--into", "{tmp}/e", "--from", "{store}", "--table", "a.b"],
            "go with --to iceberg",
        ),
        (
            ["--to", "iceberg", "--into", "{tmp}/e", "--from", "{store}", "--catalog", "a"],
            "--table NAMESPACE.NAME",
        ),
        (
            ["--to", "iceberg", "--into", "{tmp}/e", "--from", "{store}", "--table", "a.b"],
            "that --catalog names",
        ),
        (
            ["--to", "parquet", "--into", "{tmp}/e", "--from", "{store}", "--follow", "--every-s", "0"],
            "above 0",
        ),
        (["verify", "{tmp}"], "is no export: there is no _manifests in it"),
        (["verify", "{tmp}", "--against", "{tmp}"], "is no replica"),
    ],
)
def test_wrong_input_gives_one_line(
    stores: list[str], tmp_path: Path, arguments: list[str], said: str
) -> None:
    done = mq("export", *(text.format(tmp=tmp_path, store=stores[0]) for text in arguments))
    assert done.exit_code == 1, done.output
    (line,) = done.stderr.splitlines()
    assert line.startswith("mq: ")
    assert said in line
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("arguments", [["--to", "parquet", "--into", "e", "--from", "s"], ["verify", "e"]])
def test_without_the_extra_a_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    done = mq("export", *arguments)
    assert done.exit_code == 1
    assert done.stderr == "mq: this export needs pyarrow and numpy: pip install 'pydledger[export]'\n"


def test_a_delta_table_needs_its_own_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "deltalake" else name)
    done = mq("export", "--to", "delta", "--into", "e", "--from", "s")
    assert done.exit_code == 1
    assert done.stderr == "mq: this export needs deltalake: pip install 'pydledger[delta]'\n"


@pytest.mark.slow
def test_an_export_that_follows_takes_what_comes_until_it_is_interrupted(
    stores: list[str], tmp_path: Path
) -> None:
    into = str(tmp_path / "export")
    options = ["--into", into, "--from", stores[0], "--follow", "--every-s", "0.01", "--json"]
    command = [sys.executable, "-m", "mq", "export", "--to", "parquet", *options]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        # Where these tests run in the background of a shell, they and their children ignore SIGINT.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["last_index"] == END_INDEX
        process.send_signal(signal.SIGINT)
        last = json.loads(process.stdout.readlines()[-1])
        assert process.wait(60) == 0
    assert (last["exported"], last["last_index"]) == (END_INDEX + 1, END_INDEX)


@pytest.mark.slow
def test_the_files_of_an_export_are_a_delta_table_too(stores: list[str], tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    into = str(tmp_path / "export")
    made = mq("export", "--to", "delta", "--into", into, "--from", stores[0])
    assert made.exit_code == 0, made.output
    assert deltalake.DeltaTable(into).count() == END_INDEX + 1
    assert mq("export", "verify", into, "--against", stores[1]).exit_code == 0


@pytest.mark.slow
def test_the_files_of_an_export_are_an_iceberg_table_too(stores: list[str], tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg")
    into = str(tmp_path / "export")
    made = mq("export", "--to", "iceberg", "--into", into, "--from", stores[0])
    assert made.exit_code == 0, made.output
    assert mq("export", "verify", into, "--against", stores[1]).exit_code == 0
    again = ["export", "--to", "iceberg", "--into", into, "--from", stores[0]]
    other = mq(*again, "--catalog", "lake", "--table", "sales.orders")
    assert other.exit_code == 1
    assert "is pydledger.export in its own catalog: leave --catalog and --table out" in other.stderr


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
def test_a_cluster_that_runs_is_exported_over_the_wire_and_proved_by_its_files(
    cluster: Cluster, tmp_path: Path
) -> None:
    namesrv = cluster.layout.namesrv
    into = str(tmp_path / "export")
    exported = 0
    for text in ("one\ntwo\n", "three\n"):
        mq_apart("produce", "-n", namesrv, "--topic", "Orders", stdin=text)
        told = mq_apart("export", "--to", "parquet", "--into", into, "--namesrv", namesrv, "--json")
        count = json.loads(told.splitlines()[-1])["exported"]
        assert count > 0
        exported += count
    store = str(Path(cluster.layout.dir) / "n0" / "store")
    cluster.down()
    told = mq_apart("export", "--to", "parquet", "--into", into, "--from", store, "--json")
    exported += json.loads(told.splitlines()[-1])["exported"]
    report = json.loads(mq_apart("export", "verify", into, "--against", store, "--json"))
    assert report["proved"]
    assert (report["first_index"], report["last_index"] + 1) == (0, exported)
    assert report["compared"][0]["entries"] == exported
