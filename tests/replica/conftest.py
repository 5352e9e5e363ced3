"""What several files of this room begin with."""

from pathlib import Path
from random import Random

import pytest
from virtual_group import VirtualGroup


@pytest.fixture
def group(tmp_path: Path) -> VirtualGroup:
    """Of three that hold the same 200 entries, and are stopped."""
    group = VirtualGroup(tmp_path)
    group.start()
    leader = group.elect()
    random = Random(5)
    for number in range(100):
        group.append(leader, [b"%4d" % number + random.randbytes(random.randint(0, 2000)) for _ in range(2)])
        group.run_for(2)
    group.run_until(group.converged)
    for peer in list(group.members):
        group.stop(peer)
    return group
