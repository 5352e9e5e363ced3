"""The report of a fault run: whatever happened is on the page, in its place, and the page needs nothing but itself."""

import os
import random
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_history import BROKER, GROUP, MS, TOPIC, Model, made_history, of_kind
from made_kinds import made_kinds
from test_checkers import elect_two, lose_a_write
from told import acknowledged, fault, in_order

from faults.__main__ import main
from faults.history import (
    AnyRecord,
    FaultBegun,
    FaultVerified,
    HistoryWriter,
    LeaderSeen,
    Phase,
    Poll,
    QueueEnd,
    Run,
    Send,
    SendBegun,
    Standstill,
    Timer,
)
from faults.judge import Judgement, judge
from faults.report import fault_report, verdict
from faults.timeline import NS_PER_S, Timeline
from faults.timeline_chart import Window
from verify.report.text_report import Verdict

VOID = {"meta", "br"}


class Tags(HTMLParser):
    """Raises where tags do not close in the order in which they were opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.count = 0
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.count += 1
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def judged(records: list[AnyRecord]) -> tuple[Judgement, Timeline]:
    timeline = Timeline()
    return judge(lambda: records, timeline), timeline


def page_of(records: list[AnyRecord]) -> str:
    return fault_report(*judged(records))


@pytest.fixture
def sound() -> list[AnyRecord]:
    return made_history(random.Random(1), 400)


@given(st.integers(0, 2**32), st.integers(0, 300))
def test_every_history_makes_a_page_whose_tags_close(seed: int, steps: int) -> None:
    Tags(page_of(made_history(random.Random(seed), steps)))


def test_a_history_of_nothing_makes_a_page() -> None:
    Tags(page_of([]))


def test_the_page_needs_nothing_but_itself(sound: list[AnyRecord]) -> None:
    page = page_of(sound)
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert not re.search(r"<(script|link|img|iframe)|url\(|src=|@import", page)


def test_the_verdict_stands_on_top(sound: list[AnyRecord]) -> None:
    judgement, _ = judged(sound)
    assert verdict(judgement)[0] == "good"
    assert page_of(sound).index("Nothing acknowledged was lost") < page_of(sound).index("<svg")


def test_standstills_of_the_machine_have_a_lane_where_there_are_some(sound: list[AnyRecord]) -> None:
    assert "standstills" not in page_of(sound)
    begun_ns = sound[-1].at_ns
    page = page_of([*sound, Standstill(at_ns=begun_ns + 400 * MS, begun_ns=begun_ns, of="disk")])
    Tags(page)
    assert "<b>standstills</b><small>1, up to 0.4 s</small>" in page
    assert "the machine&#x27;s disk stood still for 0.4 s" in page


def test_a_run_that_proves_too_little_says_why() -> None:
    records = in_order(acknowledged(0, 0, 0), fault(5, 9, is_seen=False), acknowledged(10, 1, 1))
    judgement, _ = judged(records)
    assert verdict(judgement)[:2] == ("short", "Nothing is broken, yet this run proves too little")
    assert "kill is known to have happened 0 times, wanted are 1" in page_of(records)


def test_a_run_that_was_ended_before_its_faults_proves_too_little(sound: list[AnyRecord]) -> None:
    begun = sum(isinstance(record, FaultBegun) for record in sound)
    for planned, expected in ((begun, "good"), (begun + 1, "short")):
        judgement, _ = judged(
            [
                msgspec.structs.replace(record, faults=planned) if isinstance(record, Run) else record
                for record in sound
            ]
        )
        assert verdict(judgement)[0] == expected
    assert judgement.coverage.shortfalls() == [
        f"{begun} of the {begun + 1} faults of its schedule were begun"
    ]


def test_pairs_are_wanted_as_far_as_they_are_possible() -> None:
    run = Run(at_ns=0, seed=1, minutes=0.1, target="ours", members=("n0", "n1", "n2"), pairs=0)
    alone = in_order(fault(5, 9, "kill"), fault(20, 29, "pause"))
    told = "0 pairs of nemeses were on at once, wanted are 1"
    for pairs, is_short in ((None, True), (1, True), (0, False)):
        judgement, _ = judged([msgspec.structs.replace(run, pairs=pairs), *alone])
        assert (told in judgement.coverage.shortfalls()) == is_short


def test_a_group_that_was_given_nothing_is_no_witness(sound: list[AnyRecord]) -> None:
    judgement, _ = judged(
        [record for record in sound if not isinstance(record, Poll) or record.group != GROUP]
    )
    assert verdict(judgement)[0] == "short"
    assert judgement.coverage.shortfalls() == [f"group {GROUP} was given nothing"]


def test_consumers_that_ended_early_are_no_witnesses(sound: list[AnyRecord]) -> None:
    early = [record for record in sound if not isinstance(record, Phase) or record.name != "level"]
    judgement, _ = judged(early)
    assert judgement.coverage.shortfalls() == ["consumers ended before all was to have been given to them"]


def test_a_broken_promise_is_a_flag_and_a_row_with_its_records(sound: list[AnyRecord]) -> None:
    dice = random.Random(2)
    records = elect_two(lose_a_write(sound, dice), dice)
    judgement, timeline = judged(records)
    kind, headline, _ = verdict(judgement)
    assert (kind, headline) == ("bad", "2 promises broken: leader per term (1) and lost write (1)")
    page = fault_report(judgement, timeline)
    assert page.count('<line class="run-violation"') == 3  # one of them is the legend's
    for violation in judgement.violations:
        assert violation.sentence in page
        assert all(
            msgspec.json.encode(record).decode().replace('"', "&quot;") in page
            for record in violation.records
        )


def test_replicas_that_are_not_sound_make_the_verdict_bad(sound: list[AnyRecord]) -> None:
    judgement, timeline = judged(sound)
    broken = Verdict(is_clean=False, headline="1 entry differs", detail="")
    assert verdict(judgement, broken)[0] == "bad"
    assert "1 entry differs" in fault_report(judgement, timeline, broken)
    assert verdict(judgement, Verdict(is_clean=True, headline="3 replicas are equal", detail=""))[0] == "good"


def test_each_fault_is_a_bar_and_says_whether_it_was_seen(sound: list[AnyRecord]) -> None:
    begun = of_kind(sound, FaultBegun)
    unseen = begun[0]
    records = [
        record for record in sound if not (isinstance(record, FaultVerified) and record.fault == unseen.fault)
    ]
    page = page_of(records)
    assert page.count('<rect class="run-fault"') == len(begun)  # one bar less and one in the legend
    assert page.count('<rect class="run-fault unseen"') == 2
    assert f"{len(begun) - 1} of {len(begun)} seen" in page
    assert f"kill {unseen.target}" in page


def test_what_was_not_looked_for_is_not_said_to_be(sound: list[AnyRecord]) -> None:
    assert "each looked for at the end" in page_of(sound)
    unread = [record for record in sound if not isinstance(record, QueueEnd)]
    count = sum(send.outcome == "ok" for send in of_kind(sound, Send))
    assert f"{count:,} of them not looked for" in page_of(unread)


def test_times_are_rounded_to_what_a_clock_shows() -> None:
    window = Window(0, 100 * NS_PER_S, 60 * NS_PER_S)
    told = [window.clock(round(seconds * NS_PER_S)) for seconds in (119.97, 119.94, 57.5, 59.99, 0)]
    assert told == ["1:00.0", "0:59.9", "-0:02.5", "0:00.0", "-1:00.0"]


def test_phases_of_the_run_are_marked(sound: list[AnyRecord]) -> None:
    page = page_of(sound)
    Tags(page)
    assert page.count('<line class="run-phase"') == 5  # one of them is the legend's
    for told in ("faults healed at ", "producers end at ", "all level, reading back at "):
        assert page.count(told) == 2


def test_kinds_of_messages_have_a_table_where_the_run_has_some(sound: list[AnyRecord]) -> None:
    assert "Beside plain messages" not in page_of(sound)
    records = made_kinds(random.Random(1), 60)
    page = page_of(records)
    Tags(page)
    for kind in ("transactions", "timers", "filters", "requests"):
        assert page.count(f"<b>{kind}</b>") == 1
    ends = of_kind(records, Timer)
    assert f'data-label="Acknowledged">{sum(end.outcome == "ok" for end in ends)}</td>' in page
    assert "given to sql" in page


def test_lanes_stand_in_the_order_of_their_names() -> None:
    page = page_of(
        in_order(*(fault(at, at + 5, name) for at, name in ((1, "pause"), (9, "kill"), (20, "cut"))))
    )
    assert re.findall(r"<b>(cut|kill|pause)</b><small>", page) == ["cut", "kill", "pause"]


def test_what_the_history_holds_is_text_on_the_page(sound: list[AnyRecord]) -> None:
    evil = "<script>alert(1)</script>\u202e"
    records = [
        msgspec.structs.replace(record, evidence=evil)
        if isinstance(record, FaultVerified)
        else msgspec.structs.replace(record, nemesis=evil, target=evil)
        if isinstance(record, FaultBegun)
        else msgspec.structs.replace(record, leader=evil, broker=evil)
        if isinstance(record, LeaderSeen)
        else msgspec.structs.replace(record, revision=evil, target=evil)
        if isinstance(record, Run)
        else record
        for record in sound
    ]
    page = page_of(elect_two(records, random.Random(1)))
    assert "<script" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


def test_an_hour_makes_a_page_of_bounded_size() -> None:
    """Its size comes of time and faults: as many sends again change nothing."""

    def records(sends_per_s: int) -> list[AnyRecord]:
        made: list[AnyRecord] = [Run(at_ns=1, seed=1, minutes=60, target="ours", members=("n0", "n1", "n2"))]
        for second in range(3_600):
            for sequence in range(second * sends_per_s, (second + 1) * sends_per_s):
                at_ns = second * NS_PER_S + sequence % sends_per_s + 2
                made.append(SendBegun(at_ns=at_ns, producer="p", sequence=sequence, topic=TOPIC))
                made.append(
                    Send(
                        at_ns=at_ns,
                        begun_ns=at_ns,
                        producer="p",
                        sequence=sequence,
                        outcome="ok",
                        topic=TOPIC,
                        broker=BROKER,
                        queue_id=0,
                        queue_offset=sequence,
                        phy_offset=sequence,
                    )
                )
        return made

    few, many = page_of(records(1)), page_of(records(4))
    assert len(many) < 1.05 * len(few) < 200_000
    assert many.count("<details>") == 6, "close-ups of ten minutes each"


@given(st.integers(0, 2**32), st.integers(1, 50))
def test_buckets_of_any_width_count_every_send(seed: int, count_max: int) -> None:
    records = made_history(random.Random(seed), 200)
    _, timeline = judged(records)
    begin_ns, end_ns = records[0].at_ns, records[-1].at_ns + 1
    buckets = timeline.buckets(begin_ns, end_ns, count_max)
    assert len(buckets) <= count_max
    first, last = begin_ns // NS_PER_S, -(-end_ns // NS_PER_S)
    width = -(-(last - first) // count_max)
    widths = [min(width, last - start) for start in range(first, last, width)]
    sends = of_kind(records, Send)
    for outcome, name in (("ok", "acknowledged"), ("fail", "failed"), ("unknown", "unknown")):
        counted = sum(getattr(bucket, name) * wide for bucket, wide in zip(buckets, widths, strict=True))
        assert round(counted) == sum(send.outcome == outcome for send in sends)


def test_a_leader_reigns_until_the_next_term_is_seen() -> None:
    model = Model(random.Random(1))
    seen = [(1, "n0", 10), (2, "n1", 30), (1, "n0", 40), (5, "n2", 50)]
    model.records[:] = [
        LeaderSeen(at_ns=at_ms * MS, broker=BROKER, term=term, leader=leader, seen_by=leader)
        for term, leader, at_ms in seen
    ]
    _, timeline = judged(model.records)
    reigns = timeline.reigns(60 * MS)[BROKER]
    assert [(reign.term, reign.leader, reign.begin_ns // MS, reign.end_ns // MS) for reign in reigns] == [
        (1, "n0", 10, 30),
        (2, "n1", 30, 50),
        (5, "n2", 50, 60),
    ]


def write(path: Path, records: list[AnyRecord]) -> None:
    with HistoryWriter(path) as history:
        for record in records:
            history.note(record)


def test_who_reads_the_verdict_may_stop_reading(tmp_path: Path, sound: list[AnyRecord]) -> None:
    write(tmp_path / "h", sound)
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        command = [sys.executable, "-m", "faults", str(tmp_path / "h")]
        done = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_command_judges_files_and_writes_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sound: list[AnyRecord]
) -> None:
    def status_of(name: str, records: list[AnyRecord]) -> int:
        write(tmp_path / name, records)
        return main([str(tmp_path / name), "--html", str(tmp_path / "page.html")])

    assert status_of("sound", sound) == 0
    assert "Nothing acknowledged was lost" in (tmp_path / "page.html").read_text()
    assert status_of("lost", lose_a_write(sound, random.Random(1))) == 10
    assert "  lost_write: message " in capsys.readouterr().out
    assert status_of("short", sound[:50]) == 11
    assert "falls short: the group was not seen healed" in capsys.readouterr().out
    assert main([str(tmp_path / "none")]) == 1
    assert "none" in capsys.readouterr().err
