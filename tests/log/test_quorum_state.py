"""Term and vote are what was stored last, or the member says that it cannot know."""

from pathlib import Path
from random import Random

import orjson
import pytest
from crash_disk import CrashDisk, broken
from log_steps import append, config
from msgspec.structs import replace

from disk.disk import DiskError
from disk.real_disk import RealDisk
from disk.slots import SLOT_SIZE, Slots, newest_payload
from dledger.core.output import HardState
from dledger.entry import Index, Term
from dledger.log.java_files import checkpoint_job, curr_term_job
from dledger.log.log_store import LogStore
from dledger.log.quorum_state import MemberIdentity, QuorumState

DIRECTORY = "store/dledger-n0"
PATH = f"{DIRECTORY}/pydledger/quorum-state"
FIRST_START = HardState(sequence=0, curr_term=Term(0), curr_vote_for=None, doubted=False)
IDENTITY = MemberIdentity(
    disk_uuid=bytes(range(16)),
    data_file_size=1 << 30,
    group_uuid=b"\xff" * 32,
    pairs=(("n0", bytes(range(16))), ("n1", b"\x80" * 16)),
    boot_id="4d9a3c1e",
    stopped_cleanly=True,
)


def state(sequence: int, vote: str | None = "n1") -> HardState:
    return HardState(sequence, Term(sequence * 2), vote, doubted=sequence % 2 == 1)


def test_a_first_start_has_term_0_no_vote_and_no_identity() -> None:
    quorum_state = QuorumState.load(CrashDisk(), DIRECTORY)
    assert (quorum_state.hard_state, quorum_state.identity) == (FIRST_START, None)


def test_what_is_stored_is_loaded_again_field_by_field() -> None:
    disk = CrashDisk()
    quorum_state = QuorumState.load(disk, DIRECTORY)
    for identity in (replace(IDENTITY, group_uuid=None, pairs=()), IDENTITY):
        for vote in ("n1", None):
            quorum_state.store_identity_job(identity).run()
            quorum_state.store_job(state(3, vote)).run()
            again = QuorumState.load(disk, DIRECTORY)
            assert (again.hard_state, again.identity) == (state(3, vote), identity)


def test_after_any_power_loss_the_vote_is_the_last_one_stored() -> None:
    for seed in range(60):
        disk = CrashDisk()
        quorum_state = QuorumState.load(disk, DIRECTORY)
        for sequence in range(1, 2 + seed % 5):
            quorum_state.store_job(state(sequence)).run()
            disk = disk.crash(Random(seed * 7 + sequence))
            quorum_state = QuorumState.load(disk, DIRECTORY)
            assert quorum_state.hard_state == state(sequence)


@pytest.mark.parametrize("is_loaded_between", [False, True])
@pytest.mark.parametrize("damaged_slot", [0, 1])
def test_a_power_loss_and_damage_to_one_slot_uncover_no_vote_of_before(
    damaged_slot: int, is_loaded_between: bool
) -> None:
    for seed in range(30):
        disk = CrashDisk()
        quorum_state = QuorumState.load(disk, DIRECTORY)
        for sequence in (1, 2, 3):
            quorum_state.store_job(state(sequence)).run()
        if is_loaded_between:
            QuorumState.load(disk, DIRECTORY)
        disk = disk.crash(Random(seed))
        disk.content(f"{DIRECTORY}/pydledger/quorum-state")[damaged_slot * SLOT_SIZE + 40] ^= 1
        assert QuorumState.load(disk, DIRECTORY).hard_state == state(3)


def test_a_vote_whose_sync_failed_is_either_stored_or_not() -> None:
    for seed in range(60):
        disk = CrashDisk()
        quorum_state = QuorumState.load(disk, DIRECTORY)
        quorum_state.store_job(state(1)).run()
        disk.fail = lambda operation, path: broken(operation, path) if operation == "fdatasync" else None
        with pytest.raises(DiskError):
            quorum_state.store_job(state(2)).run()
        disk = disk.crash(Random(seed))
        found = QuorumState.load(disk, DIRECTORY).hard_state
        assert found in (state(1), state(2))
        # Once loaded it stays, whatever comes: load() has written it again.
        disk = disk.crash(Random(seed + 1))
        assert QuorumState.load(disk, DIRECTORY).hard_state == found


def test_a_vote_that_only_the_page_cache_has_is_written_again_before_it_counts() -> None:
    for seed in range(20):
        disk = CrashDisk()
        quorum_state = QuorumState.load(disk, DIRECTORY)
        quorum_state.store_job(state(1)).run()
        disk.fail = lambda operation, path: broken(operation, path) if operation == "fdatasync" else None
        with pytest.raises(DiskError):
            quorum_state.store_job(state(2)).run()
        disk.fail = lambda operation, path: None
        disk.fail_write_back()
        assert QuorumState.load(disk, DIRECTORY).hard_state == state(2)
        assert QuorumState.load(disk.crash(Random(seed)), DIRECTORY).hard_state == state(2)


def test_a_job_overtaken_by_a_later_one_does_not_bring_the_old_state_back() -> None:
    disk = CrashDisk()
    quorum_state = QuorumState.load(disk, DIRECTORY)
    vote = quorum_state.store_job(state(1))
    identity = quorum_state.store_identity_job(IDENTITY)
    identity.run()
    vote.run()
    again = QuorumState.load(disk, DIRECTORY)
    assert (again.hard_state, again.identity) == (state(1), IDENTITY)


def test_an_unreadable_state_makes_a_doubted_member_of_another_disk_and_is_kept() -> None:
    disk = CrashDisk()
    first = QuorumState.load(disk, DIRECTORY)
    first.store_job(state(1)).run()
    first.store_identity_job(IDENTITY).run()
    damaged = bytes(len(disk.content(PATH)))
    disk.content(PATH)[:] = damaged
    found = QuorumState.load(disk, DIRECTORY)
    assert (found.hard_state.curr_term, found.hard_state.doubted, found.identity) == (0, True, None)
    found.store_identity_job(IDENTITY).run()
    assert QuorumState.load(disk, DIRECTORY).hard_state.doubted
    assert disk.content(f"{PATH}.unreadable") == damaged


def test_a_missing_state_beside_a_ledger_with_entries_is_a_lost_one_and_not_a_first_start() -> None:
    disk = CrashDisk()
    log = LogStore.open(disk, config())
    assert not QuorumState.load(disk, DIRECTORY).hard_state.doubted  # the very first start
    append(log, [b"entry"])
    log.close(clean=True)
    assert QuorumState.load(disk, DIRECTORY).hard_state.doubted


def test_java_finds_the_next_term_and_the_checkpoint(tmp_path: Path) -> None:
    directory = f"{tmp_path}/dledger-n0"
    QuorumState.load(RealDisk(), directory)
    for term in (7, 1234):
        curr_term_job(RealDisk(), directory, Term(term)).run()
        text = (tmp_path / "dledger-n0/currterm").read_text()
        assert text == f"voteLeader=\ncurrTerm={term + 1}\nwrittenBy=pydledger\n"
    checkpoint_job(RealDisk(), directory, Index(99), Index(98)).run()
    assert (tmp_path / "dledger-n0/checkpoint").read_text() == "committedIndex=98\nendIndex=99\n"
    assert sorted(path.name for path in (tmp_path / "dledger-n0").iterdir()) == [
        "checkpoint",
        "currterm",
        "pydledger",
    ]
    assert list((tmp_path / "dledger-n0/pydledger").iterdir()) == []


def test_an_identity_of_another_release_is_read_as_far_as_this_one_knows_it() -> None:
    """A former one has written less, a later one more."""
    disk = CrashDisk()
    quorum_state = QuorumState.load(disk, DIRECTORY)
    quorum_state.store_identity_job(IDENTITY).run()
    quorum_state.close()
    fields = orjson.loads(newest_payload(bytes(disk.content(PATH))) or b"")
    del fields["identity"]["from_page_cache"]
    fields["identity"]["of_a_later_release"] = 7
    slots = Slots(disk, PATH)
    slots.write(orjson.dumps(fields))
    slots.close()
    assert QuorumState.load(disk, DIRECTORY).identity == IDENTITY
    assert IDENTITY.from_page_cache is None
