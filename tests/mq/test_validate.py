"""`mq validate` as it is typed, on the recorded replicas of a Java group and on copies that are not well."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from golden_store import DLEDGER_STORE, NODES, unpack_store
from typer.testing import CliRunner, Result

from mq.front_door import make_app
from mq.proving import validate as command

END_INDEX = 2110


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Index files are sparse and large, and nothing is judged by them.
    return unpack_store(
        DLEDGER_STORE, tmp_path_factory.mktemp("recorded"), lambda path: "/index/" not in path
    )


@pytest.fixture
def sound(recorded: Path) -> list[str]:
    """To be looked at only."""
    return [str(recorded / node) for node in NODES]


@pytest.fixture
def stores(recorded: Path, tmp_path: Path) -> list[str]:
    shutil.copytree(recorded, tmp_path / "stores")
    return [str(tmp_path / "stores" / node) for node in NODES]


def mq_validate(*arguments: str) -> Result:
    return CliRunner().invoke(make_app(), ["validate", *arguments])


def flip_last_byte_of_entry_0(store: str) -> None:
    """Java's entries have no CRC, the record in them has one of its body; its last bytes are its properties."""
    (data,) = Path(store).glob("dledger-*/data")
    path = min(data.iterdir())
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[4:8], "big")
    content[size - 1] ^= 1
    path.write_bytes(content)


@pytest.mark.slow
def test_sound_replicas_end_with_status_0_and_the_verdict_as_last_word(sound: list[str]) -> None:
    done = mq_validate(*sound, "--no-spark")
    assert done.exit_code == 0, done.output
    assert "Clean: all 3 replicas are equal, byte for byte, up to index 2,110." in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_findings_end_with_status_10_and_are_named(stores: list[str], tmp_path: Path) -> None:
    flip_last_byte_of_entry_0(stores[1])
    page, report = tmp_path / "page.html", tmp_path / "report.json"
    done = mq_validate(*stores, "--no-spark", "--html", str(page), "--json", str(report))
    assert done.exit_code == 10, done.output
    assert "error: committed divergence: " in done.stdout
    assert "Not clean: " in done.stdout
    told = json.loads(report.read_text())
    assert not told["clean"]
    assert told["totals"] == {"committed divergence": 1}
    (finding,) = told["findings"]
    assert (finding["first_index"], finding["last_index"], finding["severity"]) == (0, 0, "error")
    assert page.read_text().startswith("<!doctype html>")
    assert "Not clean: " in page.read_text()


@pytest.mark.slow
def test_json_on_standard_output_is_all_that_is_there(sound: list[str]) -> None:
    done = mq_validate(*sound[:2], "--no-spark", "--json", "-")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [replica["name"] for replica in told["replicas"]] == ["n0", "n1"]
    assert told["common_index"] == END_INDEX


@pytest.mark.slow
def test_without_the_extra_this_process_does_the_work_and_says_so(
    sound: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "has_spark", lambda: False)
    done = mq_validate(*sound)
    assert done.exit_code == 0, done.output
    assert len(done.stderr.splitlines()) == 1
    assert "pip install 'pydledger[spark]'" in done.stderr


@pytest.mark.slow
@pytest.mark.spark
def test_a_spark_that_cannot_start_says_why(sound: list[str]) -> None:
    # A process of its own: here a session of other tests would be taken.
    command = [sys.executable, "-m", "mq", "validate", sound[0], "--master", "local[0]"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert re.fullmatch(
        r"mq: Spark at local\[0\] failed: .*0 threads; --no-spark does the work in this process\n",
        done.stderr,
    )


@pytest.mark.slow
def test_nothing_is_written_into_a_store(stores: list[str]) -> None:
    def state() -> dict[Path, tuple[int, int]]:
        files = [path for store in stores for path in Path(store).rglob("*")]
        return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in files}

    before = state()
    mq_validate(*stores, "--no-spark")
    assert state() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("{0}", "{0}"), "was given twice"),
        (("{0}", "{top}/no/such/directory"), "is no directory"),
        (("{0}", "{top}"), "is no replica: expected dledger-<id>/data or commitlog in it"),
        (("{0}", "--history", "{top}/none"), "none: No such file"),
        (("{0}", "--history", "/dev/null"), "is empty: no send was noted in it"),
        (("{0}", "--broker", "a"), "give --history too"),
        (("{0}", "--html", "/proc/report.html"), "cannot be written"),
        (("{0}", "--json", "{top}/no/such/report.json"), "cannot be written: No such file or directory"),
        (("{0}", "--html", "{top}"), "is a directory: name a file in it"),
        (("{0}", "--html", "{0}/dledger-n0/data/00000000000000000000"), "which is only read"),
        (("{0}", "--html", "{top}/x", "--json", "{top}/x"), "is the file of --json: name another"),
        (("{0}", "--committed", "-3"), "the first one is 0"),
        (("{0}", "--max-findings", "0"), "must be at least 1"),
        (("{0}", "--master", "local[2]", "--no-spark"), "give one of them"),
        (("{0}", "--master", "127.0.0.1:7077"), "is none of: local[*]"),
    ],
)
def test_a_mistake_is_one_line_that_tells_what_to_do(
    sound: list[str], tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    typed = [argument.format(*sound, top=tmp_path) for argument in arguments]
    done = mq_validate(*typed, *([] if {"--no-spark", "--master"} & set(typed) else ["--no-spark"]))
    assert done.exit_code == 1, done.output
    assert reason in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""


def test_the_directory_around_a_store_names_it(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    done = mq_validate(str(tmp_path), "--no-spark")
    assert done.exit_code == 1
    assert f"its {tmp_path / 'store'} may be one" in done.stderr


@pytest.mark.slow
def test_a_history_that_is_none_is_refused_with_its_line(sound: list[str], tmp_path: Path) -> None:
    history = tmp_path / "history"
    for text in ("what\n", '{"outcome": "ok"}\n', '["ok"]\n', '{"outcome": "perhaps"}\n'):
        history.write_text('{"outcome": "unknown"}\n' + text)
        done = mq_validate(*sound, "--no-spark", "--history", str(history))
        assert done.exit_code == 1, done.output
        assert f"{history}:2" in done.stderr


@pytest.mark.slow
def test_replicas_of_different_groups_are_refused(stores: list[str]) -> None:
    (data,) = Path(stores[1]).glob("dledger-*/data")
    for path in data.iterdir():
        path.write_bytes(path.read_bytes()[: 2**19])
    done = mq_validate(*stores, "--no-spark")
    assert done.exit_code == 1, done.output
    assert "they are not of one group" in done.stderr


@pytest.mark.slow
def test_spark_asked_for_by_name_has_to_be_there(sound: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "has_spark", lambda: False)
    done = mq_validate(*sound, "--master", "local[1]")
    assert done.exit_code == 1
    assert "pip install 'pydledger[spark]'" in done.stderr
