"""The page is judged by a parser; how it looks was judged by eye, in a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from made_report import TERMS, many_terms, replica, report, without_leaders

from verify.findings import Finding, Kind
from verify.report.html_chart import Axis, axis_of, bands, chart, damage_marks, lane_names, round_values
from verify.report.html_report import html_report
from verify.report.text_report import finding_lines, place, replica_row, size, span, verdict, visible
from verify.validation_report import DamagedRange, TermRun, ValidationReport

VOID = {"meta", "br"}
HOSTILE = "</code><script>alert(1)</script>\"'&\x1b[31m\u202e\x00\ud800"
BODY_CRC = Finding(kind=Kind.BODY_CRC, replica="n1", first_index=900, last_index=900, sentence="entry 900")
SHORTER = Finding(kind=Kind.SHORTER_REPLICA, replica="n2", first_index=2000, last_index=2110, count=111)


class Page(HTMLParser):
    """Refuses elements that are not closed in order; keeps the text, the names of elements and all attributes."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def count(self, tag: str, css: str) -> int:
        return sum(
            name == tag and css in (attributes.get("class") or "").split()
            for name, attributes in self.elements
        )


def page(of: ValidationReport) -> Page:
    source = html_report(of)
    source.encode()  # what it says can be written
    return Page(source)


def test_the_verdict_is_one_sentence_and_on_top() -> None:
    clean = page(report())
    assert clean.count("section", "good") == 1
    assert "Clean: all 3 replicas are equal, byte for byte, up to index 2,110." in clean.text
    damaged = page(report(findings=[BODY_CRC]))
    assert damaged.count("section", "bad") == 1
    assert "Not clean: 1 error in n1." in damaged.text


def test_a_replica_is_named_in_the_verdict_only_if_all_errors_are_in_replicas() -> None:
    lost = Finding(kind=Kind.LOST_MESSAGE, topic="T")
    assert verdict(report(findings=[BODY_CRC, lost])).headline == "Not clean: 2 errors."


def test_infos_leave_the_verdict_clean_and_are_told() -> None:
    judged = verdict(report(findings=[SHORTER]))
    assert judged.is_clean
    assert judged.detail == "What was found breaks no promise: shorter replica (111)."


def test_what_was_not_looked_at_is_said_with_the_reason() -> None:
    """A running replica may hold more than its files have told; a stopped one does not."""
    short = (TermRun(1, 0, 849), TermRun(2, 850, 1000))
    names = ("n0", "n1", "n2")
    running = report([replica("n0"), *(replica(name, short, is_live=True) for name in names[1:])])
    assert verdict(running).detail == (
        "The group has committed up to index 2,110; n1 and n2 run, and their files told of the commit up to index "
        "1,000 when the validation began: no more was looked at."
    )
    stopped = report([replica("n0"), replica("n1", short), replica("n2", TERMS[:2])])
    assert verdict(stopped).detail == (
        "The group has committed up to index 2,110; the logs of n1 and n2 end at index 1,000 and 1,468."
    )


def test_what_stood_in_a_store_cannot_become_markup() -> None:
    finding = Finding(
        kind=Kind.CONSUME_QUEUE_EXTRA,
        replica=HOSTILE,
        file=HOSTILE,
        topic=HOSTILE,
        queue_id=1,
        sentence=HOSTILE,
    )
    runs = [TermRun(1, 0, 9, HOSTILE)]
    made = report([replica(HOSTILE, runs, directory=HOSTILE)], [finding], notes=[HOSTILE])
    shown = page(made)
    assert "script" not in {tag for tag, _ in shown.elements}
    assert visible(HOSTILE) in shown.text
    for char in "\x1b\u202e\x00\ud800":
        assert char not in html_report(made)


def test_the_page_needs_nothing_but_itself() -> None:
    source = html_report(report(findings=[BODY_CRC, SHORTER]))
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<img| src=| href=| on\w+=", source)
    assert "default-src 'none'" in source


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_each_replica_has_its_lane_and_its_row(count: int) -> None:
    shown = page(report([replica(f"n{i}") for i in range(count)]))
    assert shown.count("svg", "lane") == count
    assert shown.text.count("/srv/n") == count


def test_names_that_are_paths_are_told_by_what_is_their_own() -> None:
    def names(*paths: str) -> list[str]:
        return lane_names([replica(path) for path in paths])

    assert names("/srv/a/n0/store", "/srv/a/n1/store") == ["n0", "n1"]
    assert names("/srv/a", "/srv/b") == ["a", "b"]
    assert names("/srv/a/x", "/srv/b/y") == ["a/x", "b/y"]
    assert names("a/n0/store", "b/n0/store") == ["a/n0", "b/n0"]
    assert names("/srv/a/store", "b/store") == ["/srv/a/store", "b/store"]
    assert names("/srv/a") == ["/srv/a"]
    assert names("n0", "n1") == ["n0", "n1"]


def test_terms_are_bands_with_their_leader() -> None:
    shown = page(report([replica("n0")]))
    titles = [f"term {run.term}, led by {run.leader_host}" for run in TERMS]
    assert all(title in shown.text for title in titles)
    # The first and the last had the same leader: one hue, two shades.
    assert [shown.count("rect", css) for css in ("c0", "c1", "s0", "s1")] == [3, 2, 4, 1]


def test_a_term_too_short_to_be_drawn_takes_no_number_from_its_neighbours() -> None:
    runs = [TermRun(1, 0, 99_999), TermRun(2, 100_000, 100_000), TermRun(3, 100_001, 999_999)]
    drawn = bands(runs, Axis(0, 1_000_000, "index"))
    assert [[run.term for run in band.runs] for band in drawn] == [[1], [2], [3]]


def test_terms_of_no_known_leader_have_a_colour_each() -> None:
    shown = page(report([replica("n0", without_leaders(TERMS))]))
    assert [shown.count("rect", f"c{run.term}") for run in TERMS] == [1, 1, 1]
    assert "led by" not in shown.text


def test_damage_is_marked_where_it_is() -> None:
    damaged = [DamagedRange(900, 900, "body crc"), DamagedRange(1300, 1411, "committed divergence")]
    shown = page(report([replica("n0", damaged=damaged), replica("n1")], [BODY_CRC]))
    assert shown.count("rect", "bad") == 2
    boxes = [
        attributes for tag, attributes in shown.elements if attributes.get("class") == "bad" and tag == "rect"
    ]
    assert [box["x"] for box in boxes] == [f"{100 * 900 / 2111:.3f}%", f"{100 * 1300 / 2111:.3f}%"]
    assert "index 1,300 – 1,411: committed divergence" in shown.text


def test_damage_too_close_to_be_told_apart_is_one_mark() -> None:
    axis = Axis(0, 1_000_000, "index")
    damaged = [DamagedRange(i * 100, i * 100 + 5, ("gap", "order")[i % 2]) for i in range(10_000)]
    assert damage_marks(damaged, axis) == [(0, 999_905, ["gap", "order"])]
    assert (
        len(damage_marks([DamagedRange(5, 5, "gap"), DamagedRange(6, 6, "gap")], Axis(0, 10, "index"))) == 1
    )
    assert (
        len(damage_marks([DamagedRange(5, 5, "gap"), DamagedRange(8, 8, "gap")], Axis(0, 10, "index"))) == 2
    )


@pytest.mark.parametrize("leaders", [("a", "b", "c"), ()])
def test_a_thousand_terms_cost_no_more_than_some_hundred(leaders: tuple[str, ...]) -> None:
    runs = many_terms(1000, 10**9, leaders)
    drawn = list(bands(runs, Axis(0, 10**9, "index")))
    assert len(drawn) <= 501
    assert [run for band in drawn for run in band.runs] == list(runs)
    assert len(html_report(report([replica(f"n{i}", runs) for i in range(5)]))) < 700_000


def test_a_log_of_one_entry_is_drawn() -> None:
    shown = page(report([replica("n0", [TermRun(1, 0, 0)])]))
    assert shown.count("svg", "lane") == 1
    assert "1 sound entry." in shown.text


def test_replicas_without_entries_have_nothing_to_draw() -> None:
    empty = report([replica("n0", []), replica("n1", [])], common_index=-1)
    assert chart(empty) == ""
    assert "Nothing to prove: both replicas without an entry." in page(empty).text
    one_empty = page(report([replica("n0"), replica("n1", [])], common_index=-1))
    assert one_empty.count("svg", "lane") == 2
    assert "n1: empty" in html_report(report([replica("n0"), replica("n1", [])], common_index=-1))


def test_running_replicas_of_which_nothing_was_judged_are_not_called_sound() -> None:
    young = report([replica("n0", [], is_live=True), replica("n1", [], is_live=True)], common_index=-1)
    assert verdict(young).headline.startswith("Nothing to judge yet")
    assert "--committed N" in page(young).text


def test_a_log_that_begins_late_is_drawn_from_there() -> None:
    late = replica("n0", [TermRun(7, 10**9 - 1000, 10**9 - 1)], begin_index=10**9 - 1000)
    assert axis_of([late]) == Axis(10**9 - 1000, 10**9, "index")


def test_plain_commit_logs_are_told_and_drawn_by_position() -> None:
    plain = [
        replace(
            replica(name, []), layout="commitlog", entry_count=1185, message_count=1185, end_pos=1_220_287
        )
        for name in ("a", "b")
    ]
    two, one = report(plain, common_index=-1), report(plain[:1], common_index=-1)
    shown = page(two)
    assert shown.count("svg", "lane") == 2
    assert "Clean: both replicas are equal, byte for byte, as far as they go." in shown.text
    assert "1.2 MiB" in shown.text
    assert "– -1" not in shown.text
    assert "Committed up to" not in shown.text
    assert verdict(one).headline == "Clean: 1 replica with 1,185 sound messages."
    assert replica_row(plain[0])[2] == "-"


def test_a_shortened_list_says_so_and_its_totals_are_whole() -> None:
    findings = [
        Finding(kind=Kind.GAP, replica="n0", first_index=i, count=10, sentence="gap") for i in range(250)
    ]
    shown = page(report(findings=findings))
    assert shown.text.count("What is there") == 1
    assert shown.count("span", "tag") == 200
    assert "2,500" in shown.text
    assert "50 more are left out" in shown.text
    # Whose findings were left out is not known, so nobody is named.
    assert verdict(report(findings=findings)).headline == "Not clean: 2,500 errors."


def test_notes_say_what_was_not_looked_at() -> None:
    assert "Not looked at" in page(report(notes=["no index files"])).text
    assert "Not looked at" not in page(report()).text


def test_round_numbers_keep_clear_of_the_ends() -> None:
    assert round_values(0, 2110) == [500, 1000, 1500]
    assert round_values(10**9 - 1000, 10**9 - 1) == [10**9 - 800, 10**9 - 600, 10**9 - 400, 10**9 - 200]
    assert round_values(0, 0) == []


def test_json_holds_all_that_the_report_says() -> None:
    findings = [BODY_CRC, SHORTER]
    told = json.loads(json.dumps(report(findings=findings, acknowledged=5, acknowledged_found=4).as_dict()))
    assert (told["clean"], told["errors"], told["infos"]) == (False, 1, 111)
    assert told["totals"] == {"body crc": 1, "shorter replica": 111}
    assert told["findings"][0] == {
        "severity": "error",
        "kind": "body crc",
        "replica": "n1",
        "first_index": 900,
        "last_index": 900,
        "count": 1,
        "sentence": "entry 900",
    }
    assert (told["acknowledged"], told["acknowledged_found"], told["common_index"]) == (5, 4, 2110)
    first = told["replicas"][0]
    assert (first["name"], first["end_term"], first["chain_crc"]) == ("n0", 4, "deadbeef")
    assert first["term_runs"][1] == {
        "term": 2,
        "first_index": 850,
        "last_index": 1468,
        "leader_host": "127.0.0.1:9896",
    }


def test_ranges_and_sizes_read_as_people_write_them() -> None:
    assert [span(None, None), span(5, None), span(5, 5), span(5, 1234)] == ["", "5", "5", "5 – 1,234"]
    assert [size(0), size(1023), size(1536), size(5 * 2**40)] == ["0 B", "1,023 B", "1.5 KiB", "5.0 TiB"]
    orders = Finding(kind=Kind.CONSUME_QUEUE_WRONG, topic="Orders", queue_id=0, first_offset=0, last_offset=9)
    assert place(orders) == "Orders · queue 0 · offset 0 – 9"
    assert finding_lines(orders) == ["error: consume queue unit wrong: Orders · queue 0 · offset 0 – 9"]
    assert finding_lines(BODY_CRC) == ["error: body crc: n1, index 900", "entry 900"]


def test_text_without_end_is_cut() -> None:
    assert len(visible("x" * 10_000)) == 600
