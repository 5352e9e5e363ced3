"""config/*.json: what cannot be read, and groups that are where their queues never were."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from derived_store import GROUP, Stores, cut_out, derived_findings, facts_of, made_once

from verify.findings import Finding, Kind
from verify.replica import open_replica
from verify.state.config_check import config_notes


@pytest.fixture
def stores(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    return Stores(made_once(tmp_path_factory), tmp_path)


def said(findings: list[Finding]) -> list[tuple[Kind, str, str]]:
    return [(finding.kind, finding.replica, finding.file) for finding in findings]


def set_offset(root: Path, offset: int, name: str = "consumerOffset.json") -> None:
    path = root / "config" / name
    text, count = re.subn(r'("Orders@billing":\{\s*0:)\d+', rf"\g<1>{offset}", path.read_text())
    assert count == 1
    path.write_text(text)


@pytest.mark.parametrize("name", ["topics.json", "subscriptionGroup.json", "consumerOffset.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"dataVersion":{}}', b'{"a":' * 5_000],
    ids=["empty", "cut", "no text", "no map", "no table", "deep"],
)
def test_a_table_that_neither_file_nor_backup_gives_is_named(
    stores: Stores, name: str, content: bytes
) -> None:
    config = stores.roots[1] / "config"
    (config / name).write_bytes(content)
    (config / f"{name}.bak").write_bytes(content)
    findings = stores.findings()
    assert said(findings) == [(Kind.CONFIG_UNREADABLE, "n1", f"config/{name}")]
    assert findings[0].sentence.startswith(f"the table cannot be read: {name}: ")
    assert f"; {name}.bak: " in findings[0].sentence


def test_a_table_without_a_backup_is_named_too(stores: Stores) -> None:
    config = stores.roots[0] / "config"
    (config / "topics.json").write_text("{")
    (config / "topics.json.bak").unlink()
    [finding] = stores.findings()
    assert said([finding]) == [(Kind.CONFIG_UNREADABLE, "n0", "config/topics.json")]
    assert finding.sentence.endswith("there is no topics.json.bak")


def test_the_backup_stands_for_its_file(stores: Stores) -> None:
    config = stores.roots[0] / "config"
    (config / "topics.json").write_text("{")
    (config / "consumerOffset.json").unlink()
    assert stores.findings() == []
    notes = config_notes(open_replica(stores.roots[0]))
    assert [note.split(": ")[1] for note in notes] == [
        "config/consumerOffset.json.bak was read in place of config/consumerOffset.json",
        "config/topics.json.bak was read in place of config/topics.json",
    ]


def test_a_store_without_exports_has_no_finding(stores: Stores) -> None:
    for path in (stores.roots[2] / "config").iterdir():
        path.unlink()
    (stores.roots[2] / "config").rmdir()
    assert stores.findings() == []


def test_offsets_that_are_no_numbers_are_unreadable(stores: Stores) -> None:
    config = stores.roots[0] / "config"
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (config / name).write_text('{"offsetTable":{"Orders@billing":{0:"1"}}}')
    assert said(stores.findings()) == [(Kind.CONFIG_UNREADABLE, "n0", "config/consumerOffset.json")]


@pytest.mark.parametrize("beyond", [1, 1000])
def test_a_group_beyond_the_end_of_its_queue_is_named(stores: Stores, beyond: int) -> None:
    replica = stores.replicas()[0]
    end = 75
    set_offset(stores.roots[2], end + beyond)
    assert stores.findings() == [
        Finding(
            kind=Kind.GROUP_OFFSET,
            replica="n2",
            file="config/consumerOffset.json",
            topic="Orders",
            queue_id=0,
            first_offset=end + beyond,
            last_offset=end + beyond,
            sentence=f"group {GROUP} is at offset {end + beyond}, the queue's next message will have {end}",
        )
    ]
    assert not replica.is_live


def test_a_group_at_the_end_has_read_everything(stores: Stores) -> None:
    set_offset(stores.roots[2], 75)
    assert stores.findings() == []


def test_a_group_below_zero_is_named(stores: Stores) -> None:
    set_offset(stores.roots[0], -1)
    [finding] = stores.findings()
    assert said([finding]) == [(Kind.GROUP_OFFSET, "n0", "config/consumerOffset.json")]
    assert finding.sentence == f"group {GROUP} is at offset -1, below the queue's first one"


def test_the_backup_s_offsets_are_judged_where_it_is_read(stores: Stores) -> None:
    config = stores.roots[0] / "config"
    (config / "consumerOffset.json").replace(config / "consumerOffset.json.bak")
    set_offset(stores.roots[0], 500, "consumerOffset.json.bak")
    assert said(stores.findings()) == [(Kind.GROUP_OFFSET, "n0", "config/consumerOffset.json.bak")]


def test_an_export_that_is_newer_than_what_was_read_of_a_live_log_is_not_judged(stores: Stores) -> None:
    set_offset(stores.roots[0], 500)
    live = replace(open_replica(stores.roots[0]), is_live=True)
    facts = facts_of(live)
    index = facts["n0"].end_index
    assert said(derived_findings([live])) == [(Kind.GROUP_OFFSET, "n0", "config/consumerOffset.json")]
    read = {"n0": replace(facts["n0"], end_index=index // 2)}
    assert derived_findings([live], facts=read, up_to=index // 2) == []


def test_a_queue_that_expired_as_a_whole_says_nothing_of_its_end(stores: Stores) -> None:
    """A log that begins late may have had more messages of it."""
    replica = open_replica(stores.roots[0])
    path = stores.roots[0] / "config" / "consumerOffset.json"
    path.write_text(path.read_text().replace('"Orders@billing":', '"Gone@billing":'))
    assert said(derived_findings([replica])) == [(Kind.GROUP_OFFSET, "n0", "config/consumerOffset.json")]
    assert derived_findings([replace(replica, data_files=replica.data_files[1:])]) == []


def test_behind_damage_no_end_is_sure(stores: Stores) -> None:
    set_offset(stores.roots[0], 76)
    replica = open_replica(stores.roots[0])
    facts = facts_of(replica, damaged=((1000, 1500),))
    assert derived_findings([replica], facts=facts) == []


def test_java_s_offsets_are_judged_too(tmp_path: Path) -> None:
    root = cut_out("single-4.9.5-clean", tmp_path)
    path = root / "config" / "consumerOffset.json"
    text, count = re.subn(r'("StoreB@sg_cons":\{\s*0:)180', r"\g<1>181", path.read_text())
    assert count == 1
    path.write_text(text)
    [finding] = derived_findings([open_replica(root)])
    assert (finding.kind, finding.topic, finding.queue_id) == (Kind.GROUP_OFFSET, "StoreB", 0)
    assert finding.sentence == "group sg_cons is at offset 181, the queue's next message will have 180"


@pytest.mark.parametrize(("offset", "faulty"), [(-1, True), (26, False), (27, False), (28, True)])
def test_a_delay_level_outside_its_queue_is_named(stores: Stores, offset: int, faulty: bool) -> None:
    path = stores.roots[1] / "config" / "delayOffset.json"
    text, count = re.subn(r'("offsetTable":\{\s*1:)\d+', rf"\g<1>{offset}", path.read_text())
    assert count == 1
    path.write_text(text)
    findings = stores.findings()
    assert said(findings) == ([(Kind.GROUP_OFFSET, "n1", "config/delayOffset.json")] if faulty else [])
    for finding in findings:
        assert (finding.topic, finding.queue_id) == ("SCHEDULE_TOPIC_XXXX", 0)
        assert finding.sentence.startswith(f"delay level 1 is at offset {offset}, ")
