"""The plot of a run is one SVG that needs nothing else."""

import json
from xml.etree import ElementTree

import pytest
from figures import FAR_MODES, MODES, Results
from lines import FAR_LINES, LINES, Line
from plot import panels, svg

FIGURES = {
    "msgs_per_s": 5200,
    "p50_ms": 1.5,
    "p99_ms": 3,
    "lone_p99_ms": 4,
    "server_us": 80,
    "other_pct": 2,
    "failed": 0,
}
NAMESPACE = "{http://www.w3.org/2000/svg}"


def run(systems: list[str], *, is_quick: bool = False) -> Results:
    def records(mode: str, line: Line) -> list[str]:
        head = {"mode": mode, "line": line.name, "kind": line.kind, "round": 1, **dict(line.options)}
        return [json.dumps({**head, **FIGURES, "system": system}) for system in systems]

    lines = [json.dumps({"facts": [], "systems": systems})]
    for mode in MODES if is_quick else (*MODES, *FAR_MODES):
        for line in LINES if mode in MODES else FAR_LINES:
            if line.is_quick or not is_quick:
                lines += records(mode, line)
    return Results.parse(lines)


def test_whole_run_has_a_panel_per_size_and_mode_and_one_per_latency() -> None:
    titles = [panel.title for panel in panels(run(["this", "before"]))]
    assert titles == [
        *("page cache, 128 B", "fsync, 128 B", "page cache, 1 KiB", "fsync, 1 KiB"),
        *(
            "page cache, 16 KiB",
            "fsync, 16 KiB",
            "256 senders on 4 connections, 1 KiB",
            "one sender, 1 KiB, p50",
        ),
        *("from send to a waiting group, p99", "a lone sender beside 63 busy ones, p99"),
    ]


def test_bars_of_a_panel_stand_by_connections() -> None:
    panel = panels(run(["this"], is_quick=True))[0]
    assert [name for name, _ in panel.groups] == ["64 on one", "8 on 8", "64 on 64", "512 on 512"]


@pytest.mark.parametrize("systems", [["this"], ["this", "<before>", "NATS R3", "prototype", "Java DLedger"]])
def test_plot_is_sound_xml_with_a_bar_per_value(systems: list[str]) -> None:
    results = run(systems)
    picture = ElementTree.fromstring(svg(results))
    bars = [rect for rect in picture.iter(f"{NAMESPACE}rect") if rect.find(f"{NAMESPACE}title") is not None]
    assert len(bars) == sum(len(values) for panel in panels(results) for _, values in panel.groups)
    assert "http" not in svg(results).replace("http://www.w3.org/2000/svg", "")


def test_run_in_which_all_failed_is_drawn_as_nothing() -> None:
    record = {"mode": "fsync", "line": "x", "kind": "rate", "round": 1, "system": "this", "error": "no end"}
    results = Results.parse(map(json.dumps, [{"facts": [], "systems": ["this"]}, record]))
    assert panels(results) == []
    assert ElementTree.fromstring(svg(results)).tag == f"{NAMESPACE}svg"
