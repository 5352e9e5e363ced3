"""What a run takes, in which order, and the options that say so."""

import sys
from argparse import ArgumentTypeError
from pathlib import Path

import pytest
from figures import FAR_MODES, KEY_FIGURES, cell
from lines import KIND_LINES, LINES, PROXY_LINES, send_line
from side_by_side import parse_options, parse_tree, sessions, systems_of
from systems import DISKS_MODULES, LINKS_MODULE, cluster_tests_module

ROOT = Path(__file__).resolve().parents[2]


def plan(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> list[tuple[int, str, str, int]]:
    """(round, mode, system, lines) of each session."""
    monkeypatch.setattr(sys, "argv", ["side_by_side.py", "--no-nats", *arguments])
    options = parse_options()
    systems = systems_of(options, {"this": ROOT, **dict(options.tree)}, Path(sys.executable))
    return [
        (number, mode, system.name, len(lines)) for number, mode, system, lines in sessions(options, systems)
    ]


def test_states_of_the_code_take_turns_in_each_round(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, "--tree", f"before={ROOT}", "--rounds", "2", "--lines", "page cache")
    assert made == [
        (number, "page cache", name, len(LINES)) for number in (1, 2) for name in ("this", "before")
    ]


def test_other_networks_and_disks_are_for_our_code_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, "--prototype", "hotpath.py", "--rounds", "1")
    assert [name for _, mode, name, _ in made if mode in FAR_MODES] == ["this"] * len(FAR_MODES)


def test_quick_run_has_one_round_and_one_size(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, "--quick")
    assert [mode for _, mode, _, _ in made] == ["page cache", "fsync"]
    assert all(count < len(LINES) for *_, count in made)


def test_kinds_are_measured_of_our_code_and_of_one_plain_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, "--kinds", "--rounds", "1", "--oracle", "oracle")
    systems = ("this", "RocketMQ, one plain broker")
    assert made == [(1, mode, name, len(lines)) for mode, lines in KIND_LINES.items() for name in systems]


def test_quick_run_of_kinds_leaves_out_what_takes_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, "--kinds", "--quick")
    assert [mode for _, mode, _, _ in made] == ["page cache", "fsync"]


def test_proxies_are_measured_of_our_code_and_of_one_plain_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(monkeypatch, "--proxy", "--rounds", "2", "--oracle", "with_proxy.sh")
    systems = ("this", "RocketMQ, one plain broker")
    assert made == [(number, "page cache", name, len(PROXY_LINES)) for number in (1, 2) for name in systems]


def test_kinds_and_proxies_are_tables_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit):
        plan(monkeypatch, "--proxy", "--kinds")


def test_what_is_measured_has_a_way_to_be_told() -> None:
    for lines in (*KIND_LINES.values(), LINES, PROXY_LINES):
        for line in lines:
            assert line.kind in KEY_FIGURES
            assert cell({"kind": line.kind}) == ""


def test_lines_of_one_name_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(monkeypatch, "--rounds", "1", "--lines", "^fsync, idle") == [(1, "fsync", "this", 1)]


def test_tree_is_given_by_name_and_path() -> None:
    assert parse_tree(f"before={ROOT}") == ("before", ROOT)
    for wrong in ("before", f"={ROOT}", f"before={ROOT / 'docs'}"):
        with pytest.raises(ArgumentTypeError, match="write NAME=PATH"):
            parse_tree(wrong)


def test_line_says_how_many_send_over_how_many_connections() -> None:
    line = send_line(512, 512, 16384)
    assert line.name == "512 senders on 512 connections, 16 KiB"
    assert line.arguments() == ["-senders=512", "-conns=512", "-size=16384", "-topic=S512x512x16384"]
    assert not line.is_quick


@pytest.mark.parametrize("name", [LINKS_MODULE, *DISKS_MODULES])
def test_what_delays_networks_and_disks_is_found_in_the_cluster_tests(name: str) -> None:
    assert cluster_tests_module(name).__name__ == name
