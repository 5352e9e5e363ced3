"""Tables on terminals of several widths."""

import sys

import pytest

from mq.console import print_table

COLUMNS = ("id", "leader_of_all", "pid", "ledger_end")
ROWS = [["n0", "127.0.0.1:9886", "12345", 1_234_567], ["n1", None, None, 7]]


def shown_on(
    columns: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_terminal: bool = True,
) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    print_table("", COLUMNS, ROWS, dispensable=("pid", "leader_of_all"))
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("columns", "left_out"),
    [(80, ""), (43, ""), (42, "pid"), (35, "pid"), (34, "pid, leader of all"), (9, "pid, leader of all")],
)
def test_what_a_narrow_terminal_has_no_room_for_is_left_out_and_named(
    columns: int, left_out: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown_on(columns, monkeypatch, capsys)
    assert "…" not in told
    if not left_out:
        assert "127.0.0.1:9886" in told
        assert "12345" in told
        assert "1,234,567" in told
    elif columns > 9:
        assert " ".join(told.split()).endswith(f"left out, as the terminal is narrow: {left_out}")
        assert "12345" not in told
        assert ("127.0.0.1:9886" in told) == (left_out == "pid")
        assert "1,234,567" in told


def test_in_a_pipe_nothing_is_left_out_or_folded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = shown_on(10, monkeypatch, capsys, is_terminal=False)
    assert "leader of all" in told
    assert [cell.strip() for cell in told.splitlines()[3].split("│")[1:-1]] == [
        "n0",
        "127.0.0.1:9886",
        "12345",
        "1,234,567",
    ]
