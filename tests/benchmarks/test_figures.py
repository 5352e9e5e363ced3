"""What becomes of the records of a run: medians, marks, the table, its place in the docs."""

import json
from pathlib import Path
from typing import Any

import pytest
from figures import (
    MARK,
    Results,
    cell,
    is_disturbed,
    least_disturbed,
    marks,
    median_of,
    number,
    ratio,
    table,
    with_figures,
)

RATE = {"kind": "rate", "msgs_per_s": 5200, "server_us": 320.4, "p50_ms": 11.92, "p99_ms": 20.0, "failed": 0}


def record(system: str, line: str, mode: str = "page cache", **figures: Any) -> dict[str, Any]:
    return {**RATE, "system": system, "mode": mode, "line": line, "round": 1, "other_pct": 3, **figures}


def test_median_is_taken_of_each_figure_by_itself() -> None:
    rounds = [
        {"kind": "rate", "round": 1, "msgs_per_s": 10, "p50_ms": 3.0},
        {"kind": "rate", "round": 2, "msgs_per_s": 30, "p50_ms": 1.0},
        {"kind": "rate", "round": 3, "msgs_per_s": 20, "p50_ms": 9.0},
    ]
    told = median_of(rounds)
    assert (told["msgs_per_s"], told["p50_ms"], told["kind"]) == (20, 3.0, "rate")


def test_median_leaves_out_rounds_that_failed_and_adds_up_failed_sends() -> None:
    rounds = [record("this", "l", failed=2), {**record("this", "l"), "error": "no end"}, record("this", "l")]
    told = median_of(rounds)
    assert told["failed"] == 2
    assert told["msgs_per_s"] == 5200


def test_line_that_failed_in_every_round_is_told_as_failed() -> None:
    assert cell(median_of([{"kind": "rate", "error": "no end"}])) == "failed"


def test_one_disturbed_round_marks_the_line() -> None:
    told = median_of([record("this", "l"), record("this", "l", other_pct=21), record("this", "l")])
    assert is_disturbed(told)
    assert cell(told) == f"5,200/s · 320 µs · 11.9 ms · 20 ms{MARK}"


def test_twenty_percent_are_borne() -> None:
    assert not is_disturbed({"other_pct": 20})
    assert not is_disturbed({"error": "no figures, and so no other work either"})


def test_least_disturbed_try_counts_and_a_failed_one_only_where_all_failed() -> None:
    tries: list[dict[str, Any]] = [{"other_pct": 40}, {"error": "x"}, {"other_pct": 30}]
    assert least_disturbed(tries) == {"other_pct": 30}
    assert least_disturbed([{"error": "x"}, {"error": "y"}]) == {"error": "y"}


@pytest.mark.parametrize(
    ("value", "text"), [(37312.0, "37,312"), (15.94, "15.9"), (2.0, "2"), (0.4412, "0.441"), (99.99, "100")]
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"kind": "one", "p50_ms": 0.44, "p99_ms": 1.2, "server_us": 591}, "0.44 ms · 1.2 ms · 591 µs"),
        (
            {"kind": "lone", "lone_p50_ms": 3, "lone_p99_ms": 6, "p50_ms": 2.5, "p99_ms": 5},
            "3 ms · 6 ms · others 2.5 ms · 5 ms",
        ),
        (
            {"kind": "idle", "cpu_pct": 3.7, "wake_ups_per_s": 37, "memory_mib": 126},
            "3.7 % of a core · 37 wake-ups/s each · 126 MiB",
        ),
        ({"kind": "read", "msgs_per_s": 60000, "server_us": 18, "failed": 3}, "60,000/s · 18 µs · 3 failed"),
        ({"kind": "start", "seconds": 1.21}, "1.21 s"),
        (
            {"kind": "late", "msgs_per_s": 9000, "server_us": 80, "p50_ms": 12, "p99_ms": 51.2},
            "9,000/s · 80 µs · 12 ms late · 51.2 ms",
        ),
        (
            {"kind": "filtered", "scanned_per_s": 90000, "msgs_per_s": 9000, "scanned_us": 5.4},
            "90,000/s · 9,000/s brought · 5.4 µs",
        ),
        (
            {"kind": "memory", "anonymous_mib": 120, "memory_mib": 300},
            "120 MiB · 300 MiB with files",
        ),
        ({"kind": "leader", "served_s": 0.2, "fired_s": 2.1}, "0.2 s · timer 2.1 s"),
    ],
)
def test_cell_says_what_its_line_is_about(figures: dict[str, Any], text: str) -> None:
    assert cell(figures) == text


def test_ratio_is_ours_divided_by_theirs() -> None:
    assert ratio({**RATE, "msgs_per_s": 2600}, RATE) == "0.50 · CPU 1.00"
    assert ratio({"kind": "one", "p50_ms": 0.2}, {"kind": "one", "p50_ms": 0.4}) == "0.50"
    assert ratio(RATE, {"error": "no end"}) == ""


def results() -> Results:
    lines = [
        {"facts": ["two cores"], "systems": ["this", "before", "NATS R3"]},
        record("this", "64 on 64", msgs_per_s=17000, server_us=73),
        record("before", "64 on 64"),
        record("this", "64 on 64", mode="fsync"),
        record("NATS R3", "64 on 64", mode="fsync", other_pct=30),
    ]
    return Results.parse(map(json.dumps, lines))


def test_table_has_a_row_per_line_and_a_column_per_system() -> None:
    assert table(results()) == (
        "| | this | before | NATS R3 |\n"
        "|---|---|---|---|\n"
        "| page cache, 64 on 64 | 17,000/s · 73 µs · 11.9 ms · 20 ms "
        "| 5,200/s · 320 µs · 11.9 ms · 20 ms (ours 3.27 · CPU 0.23) | – |\n"
        "| fsync, 64 on 64 | 5,200/s · 320 µs · 11.9 ms · 20 ms "
        "| – | 5,200/s · 320 µs · 11.9 ms · 20 ms\\* (ours 1.00 · CPU 1.00) |\n"
    )


def test_figures_in_the_docs_are_replaced_and_the_rest_stays() -> None:
    (begin, end), (other, other_end) = marks("kinds"), marks("benchmarks")
    text = f"# Head\n\n{begin}\nearlier\n{end}\n\n{other}\nothers\n{other_end}\n"
    once = with_figures(text, "kinds", "later\n")
    assert once == f"# Head\n\n{begin}\n\nlater\n\n{end}\n\n{other}\nothers\n{other_end}\n"
    assert with_figures(once, "kinds", "later\n") == once


@pytest.mark.parametrize("count", [0, 2])
def test_page_without_one_place_for_the_figures_is_left_alone(count: int) -> None:
    begin, end = marks("kinds")
    with pytest.raises(ValueError, match="one line"):
        with_figures(begin + count * end, "kinds", "later")


def test_cpu_time_of_a_proxy_is_told_beside_that_of_the_brokers() -> None:
    told = {**RATE, "proxy_us": 125.0}
    assert cell(told) == "5,200/s · 320 µs · proxy 125 µs · 11.9 ms · 20 ms"
    assert ratio(told, {**RATE, "msgs_per_s": 2600, "proxy_us": 500}) == "2.00 · CPU 1.00 · proxy's CPU 0.25"


def test_docs_have_a_place_for_each_kind_of_run() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md").read_text()
    for name in ("benchmarks", "kinds", "proxy"):
        with_figures(text, name, "")
