"""Checkpoints and exports of a running member that are damaged: the scrub has them written anew."""

from collections.abc import Callable
from pathlib import Path

import pytest
from store_group import StoreGroup, StoreMember, message, scrub

from store.derived.checkpoint_file import is_whole_checkpoint
from store.state.table_configs import TopicConfig
from store.state.tables.consumer_offset_table import CommitOffset
from store.state.tables.topic_config_table import PutTopicConfig

CONFIGS = ("topics.json", "consumerOffset.json")


def states(group: StoreGroup) -> list[Path]:
    return sorted((group.root() / "dledger-n0" / "pydledger").glob("applied-state-*"))


@pytest.fixture
def group(tmp_path: Path) -> StoreGroup:
    """With two checkpoints, and all exported."""
    group = StoreGroup(tmp_path, thorough_interval_ms=300)
    group.start()
    member = group.lead()
    member.store.propose(PutTopicConfig(TopicConfig("T", 3, 3)), None, group.now_ms)
    for offset in range(3):
        member.put(*[message() for _ in range(30)])
        member.store.propose(CommitOffset("g", "T", 0, offset), None, group.now_ms)
        group.run_for(1_000)
    assert len(states(group)) == 2
    return group


def flip(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x10
    path.write_bytes(content)


def rounds_until_sound(group: StoreGroup, member: StoreMember) -> int:
    """The faults of the first round; the files are written anew before the second."""
    faults = scrub(member).faults
    group.run_for(2_000)
    assert scrub(member).faults == 0
    return faults


def test_sound_files_are_left_alone(group: StoreGroup) -> None:
    assert scrub(group.lead()).faults == 0


@pytest.mark.parametrize("at", [*range(0, 24, 3), -1])
@pytest.mark.parametrize("numbers", [(0,), (1,), (0, 1)])
def test_a_flip_in_checkpoints_is_found_and_a_sound_one_written(
    group: StoreGroup, numbers: tuple[int, ...], at: int
) -> None:
    member = group.lead()
    paths = states(group)
    for number in numbers:
        flip(paths[number], at)
    assert rounds_until_sound(group, member) == len(numbers)
    assert states(group)
    assert all(is_whole_checkpoint(path.read_bytes()) for path in states(group))
    member.crash()
    group.start()
    assert group.lead().store.reads.max_offset("T", 0) == 90


@pytest.mark.parametrize("name", ["checkpoint", *(f"config/{name}" for name in CONFIGS)])
@pytest.mark.parametrize("damage", [lambda path: flip(path, 9), lambda path: flip(path, -1), Path.unlink])
def test_a_damaged_export_is_written_anew(
    group: StoreGroup, name: str, damage: Callable[[Path], None]
) -> None:
    member = group.lead()
    path = group.root() / name
    sound = path.read_bytes()
    damage(path)
    assert rounds_until_sound(group, member) == 1
    assert len(path.read_bytes()) == len(sound)
