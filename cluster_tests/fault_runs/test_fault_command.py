"""What `scripts/faults` is asked for and told; no group is started."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_runs import fault_command
from fault_runs.fault_command import Ending


@pytest.fixture(autouse=True)
def in_a_terminal() -> Iterator[None]:
    """Whatever these tests are run under."""
    former = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, former)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--minutes", "0.000001"], "--minutes must be within 0.05 and 240"),
        (["--minutes", "1e7"], "--minutes must be within 0.05 and 240"),
        (["--minutes", "nan"], "--minutes must be within 0.05 and 240"),
        (["--rate", "inf"], "--rate must be above 0, and finite"),
        (["--seed", "-1"], "--seed must be 0 or above"),
        (["--kinds", "letters"], "invalid choice: 'letters'"),
        (["--kinds", "timers", "--target", "java"], "RocketMQ's own group is given plain messages alone"),
        (["--html", "{tmp}"], "{tmp} is a directory: name a file"),
        (["--html", "{tmp}/none/report.html"], "there is no directory {tmp}/none"),
        (["--dir", "{tmp}"], "--dir {tmp} is there already: name a new one"),
        (["--dir", "/dev/null/x"], "--dir /dev/null/x: Not a directory"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        fault_command.main([one.format(tmp=tmp_path) for one in arguments])
    assert ended.value.code == 2
    assert told.format(tmp=tmp_path) in capsys.readouterr().err


def test_the_report_may_lie_in_the_directory_that_the_run_makes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    arguments = ["--dir", str(new), "--html", str(new / "report.html"), "--only", "kill", "--schedule"]
    assert fault_command.main([*arguments, "--minutes", "1", "--seed", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[-2] == "kill"
    assert not new.exists(), "nothing was run"


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_ends_the_faults_and_the_second_breaks_off(first: int, second: int) -> None:
    ending, stopped = Ending(), list[bool]()
    ending.stop = lambda: stopped.append(True)
    before = signal.getsignal(first)
    with ending.at_signals():
        os.kill(os.getpid(), first)
        assert stopped == [True]
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), second)
    assert stopped == [True]
    assert signal.getsignal(first) is before


def test_a_signal_before_there_is_a_run_breaks_off() -> None:
    with Ending().at_signals(), pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGTERM)


def test_who_runs_it_so_that_it_outlives_the_terminal_has_it_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with Ending().at_signals():
        os.kill(os.getpid(), signal.SIGHUP)
