"""Random message soup on three and five members: whatever the order of events, Raft's invariants hold, and when the
faults end, the group agrees."""

from collections import Counter

import pytest
from soup import Soup

SEEDS_OF_THREE = range(60)
SEEDS_OF_FIVE = range(20)
SEEDS_OF_CHANGES = range(10)


def _run(size: int, seed: int, steps: int, voters: int = 0) -> Counter[str]:
    soup = Soup(size, seed, voters=voters)
    counts = soup.run(steps)
    soup.heal()
    return Counter(vars(counts))


@pytest.mark.parametrize("seed", SEEDS_OF_THREE)
def test_three_members_stay_safe_and_converge(seed):
    _run(3, seed, 1000)


@pytest.mark.parametrize("seed", SEEDS_OF_FIVE)
def test_five_members_stay_safe_and_converge(seed):
    _run(5, seed, 1500)


@pytest.mark.parametrize("voters", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", SEEDS_OF_CHANGES)
def test_members_that_come_and_go_and_lose_their_disks_stay_safe_and_converge(voters, seed):
    _run(5 if voters > 2 else 4, seed, 4000, voters)


@pytest.mark.slow
def test_the_soup_has_in_it_what_it_is_meant_to_try():
    total = Counter()
    for seed in range(100, 200):
        total += _run(3, seed, 1500)
    assert total["elections"] > 200
    assert total["crashes"] > 300
    assert total["losses"] > 50
    assert total["cuts"] > 20
    assert total["acknowledged"] > 1000
    assert total["unknown"] > 50
    assert total["deletions"] > 200
    assert total["begins_anew"] > 20
    assert total["reads"] > 500
    assert total["reads_refused"] > 500
    assert total["let_go"] > 20


def test_the_same_seed_tells_the_same_story():
    assert Soup(3, 7).run(1500) == Soup(3, 7).run(1500)


@pytest.mark.slow
def test_the_soup_of_changes_has_in_it_what_it_is_meant_to_try():
    total = Counter()
    for seed in range(100, 150):
        for voters in (2, 3, 4):
            total += _run(5, seed, 4000, voters)
    assert total["added"] > 40
    assert total["removed"] > 30
    assert total["wiped"] > 40
    assert total["losses"] > 200
    assert total["acknowledged"] > 200
