"""What `mq cluster status` says of members that are not as they should be."""

from typing import Any

import pytest

from mq.cluster_status import NOT_SAID, UNKNOWN, remarks

SOUND: dict[str, Any] = {
    "id": "n0",
    "voters": ["n0", "n1", "n2"],
    "learners": [],
    "role": "FOLLOWER",
    "term": 7,
    "serving": False,
    "ledger_end": 120_000,
    "committed": 120_000,
    "reput_behind": 0,
    "doubted": False,
    "can_vote": True,
    "waits_for": [],
    "failure": None,
    "faulty_ranges": [],
    "election_obstacle": None,
    "disk_full": None,
    "disk_obstacle": None,
    "open_switches": [],
}


# All that a sound member of the first wire version says.
OF_VERSION_1: dict[str, Any] = {
    "id": "n1",
    "group": "RaftNode00",
    "role": "LEADER",
    "term": 7,
    "leader": "n1",
    "ledger_begin": 0,
    "ledger_end": 120_000,
    "committed": 120_000,
    "applied": 120_000,
    "synced": 120_000,
    "watermarks": {"n0": 120_000, "n1": 120_000, "n2": 120_000},
    "chain_crc": 5,
    "doubted": False,
    "can_vote": True,
    "election_obstacle": None,
    "waits_for": [],
    "failure": None,
    "pid": 1,
    "serving": True,
    "reput": 120_000,
    "reput_behind": 0,
    "listen": "127.0.0.1:30911",
    "http": "127.0.0.1:30913",
    "store_dir": "store",
    "broker_name": "RaftNode00",
    "cluster": "RaftCluster",
}


def test_a_member_of_a_former_release_is_shown_beside_newer_ones() -> None:
    former = NOT_SAID | OF_VERSION_1
    assert remarks(former, [former, SOUND]) == remarks(SOUND, [former, SOUND]) == []
    behind = former | {"ledger_end": 119_000}
    assert remarks(behind, [behind, SOUND]) == ["1,000 entries behind"]


def test_of_a_sound_member_and_of_one_that_says_nothing_there_is_nothing_to_remark() -> None:
    down = UNKNOWN | {"role": "DOWN"}
    assert remarks(SOUND, [SOUND, down]) == remarks(down, [SOUND, down]) == []


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (
            {"voters": ["n1", "n2"], "learners": ["n0"]},
            "learner: it is brought up, and counts for nothing until then",
        ),
        ({"voters": ["n1", "n2"]}, "no member of the group by what its log says"),
        ({"doubted": True}, "doubted: its vote alone makes no majority"),
        ({"can_vote": False}, "does not vote: its vote could not be read"),
        (
            {"can_vote": False, "waits_for": ["n1", "n2"]},
            "the group is not formed, it waits for n1, n2",
        ),
        ({"ledger_end": 1000, "committed": 900}, "119,000 entries behind"),
        ({"reput_behind": 1234}, "1,234 entries to dispatch"),
        (
            {"open_switches": ["aclEnable=true"]},
            "open to all who reach it: aclEnable=true has no effect here",
        ),
        ({"role": "LEADER"}, "does not serve yet"),
        ({"disk_obstacle": "no space on the own disk"}, "not fit to lead: no space on the own disk"),
        (
            {"disk_full": "the disk is 91.2 % full", "disk_obstacle": "the disk is 91.2 % full"},
            "sends are refused: the disk is 91.2 % full",
        ),
        ({"disk_full": "the disk is 91.2 % full"}, "sends are refused: the disk is 91.2 % full"),
        ({"election_obstacle": "vote of term 8: no answers"}, "no leader: vote of term 8: no answers"),
        (
            {
                "faulty_ranges": [
                    {"first_index": n, "last_index": n + 5, "pos": 0, "size": 9} for n in (7, 20, 40, 60)
                ]
            },
            "damaged entries: 7..12, 20..25, 40..45 and 1 more",
        ),
        ({"failure": "sync job: EIO"}, "failed: sync job: EIO"),
    ],
)
def test_what_is_not_as_it_should_be_is_said_in_words(told: dict[str, Any], expected: str) -> None:
    status = SOUND | told
    assert remarks(status, [SOUND, status]) == [expected]
