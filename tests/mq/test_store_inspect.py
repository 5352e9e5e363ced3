"""`mq store inspect`: what lies in a store, by whom, and whether a broker of ours starts on it."""

import json
from pathlib import Path

import pytest
from golden_store import DLEDGER_STORE, unpack_store
from msgspec.structs import astuple, replace
from one_broker import OneBroker, send_fields
from typer.testing import CliRunner

from broker.store_lock import StoreLockedError
from disk.real_disk import RealDisk
from dledger.entry import ENTRY_HEADER, ENTRY_MAGIC, Pos, Term, parse_header
from dledger.log.errors import LedgerConfigError, LedgerDamagedError
from dledger.log.quorum_state import QuorumState
from mq.front_door import make_app
from remoting.codes import RequestCode

pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return unpack_store(DLEDGER_STORE, tmp_path, lambda path: "/n0/" in path) / "n0"


LAST_TERM = 2**63 - 1

# Of the broker that wrote the recorded plain stores.
JAVA_SIZES = """
mappedFileSizeCommitLog=1048576
mappedFileSizeConsumeQueue=10000
maxHashSlotNum=5000
maxIndexNum=20000
"""


def inspect(store: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(make_app("store"), ["store", "inspect", str(store), *options])
    return result.exit_code, result.output


def test_says_what_java_left(store: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in store.rglob("*")}
    status, output = inspect(store, "--json")
    found = json.loads(output)
    assert status == 0
    assert (found["written_by"], found["member"], found["data_file_size"]) == ("java", "n0", 1 << 20)
    assert [tuple(run.values()) for run in found["terms"]] == [(1, 0, 849), (2, 850, 1468), (3, 1469, 2110)]
    assert (found["java_term"], found["java_committed_index"], found["was_last_master"]) == (3, 2110, True)
    assert found["topics"]["StoreB"] == 630
    assert found["group_count"] == 9
    assert "rmq_sys_wheel_timer" in found["notes"][0]
    assert {path: path.stat().st_mtime_ns for path in store.rglob("*")} == before
    status, output = inspect(store)
    assert status == 0
    assert "taken over in place" in output


def test_says_why_a_broker_of_ours_would_not_start(store: Path) -> None:
    (store / "dledger-n0/checkpoint").write_text("committedIndex=3000\nendIndex=3000\n")
    for name in ("topics.json", "topics.json.bak"):
        (store / "config" / name).write_bytes(b"")
    status, output = inspect(store, "--json")
    assert status == 10
    obstacles = json.loads(output)["obstacles"]
    assert "entries up to 3000 are committed" in obstacles[0]
    assert "topics.json.bak" in obstacles[1]


def test_a_log_behind_a_plain_commitlog_is_named(store: Path) -> None:
    data = store / "dledger-n0/data"
    for path in sorted(data.iterdir(), reverse=True):
        moved = path.rename(data / f"{int(path.name) + (1 << 20):020d}")
        content, at = bytearray(moved.read_bytes()), 0
        while (header := parse_header(content, at)).magic == ENTRY_MAGIC:
            ENTRY_HEADER.pack_into(content, at, *astuple(replace(header, pos=Pos(header.pos + (1 << 20)))))
            at += header.size
        moved.write_bytes(content)
    status, output = inspect(store)
    assert status == 0
    assert "a plain commitlog comes before position 1,048,576" in output


def test_a_renamed_data_file_is_no_store_to_start_on(store: Path) -> None:
    data = store / "dledger-n0/data"
    newest = max(data.iterdir())
    newest.rename(data / f"{int(newest.name) + (1 << 20):020d}")
    status, output = inspect(store, "--json")
    assert status == 10
    assert json.loads(output)["obstacles"][-1].endswith(f"name it {newest.name}")


def test_a_plain_store_of_rocketmq_is_taken_over_and_then_ours(tmp_path: Path) -> None:
    root = unpack_store("single-5.5.0-clean", tmp_path)
    status, output = inspect(root)
    assert status == 0
    assert "taken over in place" in output
    broker = OneBroker(root, JAVA_SIZES, is_plain=True)
    entries = broker.store.reads.applied_index
    broker.close(clean=True)
    status, output = inspect(root, "--json")
    found = json.loads(output)
    assert (status, found["written_by"], found["begin_index"]) == (0, "pydledger", 0)
    assert found["end_index"] >= entries


@pytest.mark.parametrize("which", ["first", "last", "no file"])
def test_damage_that_stops_a_plain_broker_is_told_before_its_start(tmp_path: Path, which: str) -> None:
    broker = OneBroker(tmp_path, "mapedFileSizeCommitLog=1048576\n", is_plain=True)
    for _ in range(3):
        broker.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"a body")
    broker.close(clean=True)
    assert inspect(tmp_path)[0] == 0
    (data,) = (tmp_path / "commitlog").iterdir()
    content = data.read_bytes()
    if which == "no file":
        data.rename(tmp_path / "away")
    else:
        at = 4 if which == "first" else content.rindex(b"a body")
        data.write_bytes(content[:at] + b"?" + content[at + 1 :])
    status, output = inspect(tmp_path)
    assert status == 10
    assert "A broker of ours does not start on it" in output
    with pytest.raises((LedgerDamagedError, LedgerConfigError)):
        OneBroker(tmp_path, "mapedFileSizeCommitLog=1048576\n", is_plain=True)


def test_verify_proves_the_entries_and_changes_nothing(store: Path) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.rglob("*")}
    result = CliRunner().invoke(make_app("store"), ["store", "verify", str(store)])
    assert (result.exit_code, "Clean" in result.output) == (0, True)
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in store.rglob("*")} == before
    data = store / "dledger-n0/data/00000000000000000000"
    with data.open("r+b") as file:
        file.seek(5000)
        file.write(b"?")
    result = CliRunner().invoke(make_app("store"), ["store", "verify", str(store), "--json"])
    assert result.exit_code == 10
    assert json.loads(result.stdout)["errors"] > 0


def test_where_there_is_no_store_it_says_so(tmp_path: Path) -> None:
    status, _ = inspect(tmp_path)
    assert status == 1


def set_term(store: Path, term: int) -> tuple[int, str]:
    result = CliRunner().invoke(make_app("store"), ["store", "set-term", str(store), "--to", str(term)])
    return result.exit_code, " ".join(result.output.split())


def test_a_member_in_the_last_term_of_all_starts_says_so_and_leads_again_once_its_term_is_set(
    tmp_path: Path,
) -> None:
    def term_on_disk(term: int | None = None) -> int:
        """Of the stopped member; `term` is written first."""
        quorum_state = QuorumState.load(RealDisk(), str(tmp_path / "dledger-n0"))
        if term is not None:
            quorum_state.set_term(Term(term))
        found = quorum_state.hard_state.curr_term
        quorum_state.close()
        return found

    broker = OneBroker(tmp_path)
    entries = broker.store.reads.applied_index
    broker.close(clean=True)
    assert term_on_disk(LAST_TERM) == LAST_TERM
    broker = OneBroker(tmp_path, elect=False)
    broker.run_for(5000)
    assert not broker.store.serving
    assert f"term {LAST_TERM} leaves no term to elect in" in (broker.replica.member.election_obstacle or "")
    broker.close(clean=True)

    status, output = set_term(tmp_path, 1)
    assert (status, "the last entry" in output, "has term 1, take a higher one" in output) == (1, True, True)
    assert set_term(tmp_path, LAST_TERM)[0] == 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mq.store.StoreLock", _locked)
        told = f"mq: another broker runs on this store ({tmp_path}/lock is locked): "
        assert set_term(tmp_path, 2) == (1, told + "stop that one, or name another directory")
    assert term_on_disk() == LAST_TERM

    assert set_term(tmp_path, 2) == (0, f"{tmp_path}: term set from {LAST_TERM} to 2")
    assert set_term(tmp_path, 2)[0] == 1, "a vote of that very term would be forgotten"
    broker = OneBroker(tmp_path)
    assert (broker.replica.member.curr_term, broker.store.reads.applied_index > entries) == (3, True)
    broker.close(clean=True)


def _locked(directory: str) -> None:
    """Locks of one process are no obstacle to itself, so a test cannot hold one."""
    raise StoreLockedError(
        11,
        f"another broker runs on this store ({directory}/lock is locked): stop that one, or name another directory",
    )


def test_a_plain_store_has_no_term_to_set(tmp_path: Path) -> None:
    status, output = set_term(unpack_store("single-5.5.0-clean", tmp_path), 2)
    assert (status, "has no term of ours" in output) == (1, True)
