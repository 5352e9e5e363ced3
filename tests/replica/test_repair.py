"""A group with damage on its disks: repaired from whoever has sound bytes, leader or not, and level in the end."""

from pathlib import Path

import pytest
from virtual_group import DATA_FILE_SIZE, VirtualGroup, VirtualMember, level_group

from dledger.core.messages import Message, PeerId, PushRequest, VoteRequest
from dledger.core.output import Role
from dledger.entry import Index
from dledger.repair_status import RangeStatus
from dledger.rpc.requests import RepairMessage, RepairRequest, RepairResponse


def flip(
    group: VirtualGroup, peer: PeerId, at: int, *, count: int = 1, kind: str = "data", file: int = 0
) -> None:
    directory = group.directory / f"dledger-{peer}" / kind
    path = sorted(directory.iterdir())[file]
    content = bytearray(path.read_bytes())
    for offset in range(at, at + count):
        content[offset] ^= 1
    path.write_bytes(content)


def is_level(group: VirtualGroup) -> bool:
    files = [group.data_files(peer) for peer in group.peers]
    return group.converged() and all(other == files[0] for other in files)


def told(member: VirtualMember) -> RangeStatus:
    """Of the one range that is damaged there."""
    (status,) = member.replica.repairer.status().ranges
    return status


def faulty(member: VirtualMember) -> int:
    return len(member.replica.log.faulty)


def flip_bodies(group: VirtualGroup, member: VirtualMember, first: int, last: int) -> None:
    for index in range(first, last + 1):
        pos = member.replica.log.pos_at(Index(index)) + 50
        flip(group, member.id, pos % DATA_FILE_SIZE, file=pos // DATA_FILE_SIZE)


def find(member: VirtualMember, first: int, last: int) -> list[tuple[int, int]]:
    """What is known as damaged when these have been read."""
    log = member.replica.log
    log.recent.cut_from(Index(0))  # no answer from memory
    log.fault_found(Index(first), Index(last))
    return [(faulty.first_index, faulty.last_index) for faulty in log.faulty]


def append_to_one(group: VirtualGroup, leader: VirtualMember, bodies: list[bytes]) -> None:
    """Nobody else gets them until `loses` is set anew."""
    group.loses = lambda message: isinstance(message, PushRequest)
    group.append(leader, bodies)
    log = leader.replica.log
    group.run_until(lambda: log.durable_index == log.ledger_end_index)


@pytest.mark.parametrize("damaged", [["n0"], ["n1"], ["n2"], ["n0", "n1"]])
def test_a_flipped_bit_is_repaired_whoever_has_it(group: VirtualGroup, damaged: list[PeerId]) -> None:
    for number, peer in enumerate(damaged):
        flip(group, peer, 50, file=number)
    group.start()
    assert [faulty(group.members[peer]) for peer in damaged] == [1] * len(damaged)
    group.run_until(lambda: group.leader() and not any(map(faulty, group.running())))
    group.run_until(lambda: is_level(group))
    assert sum(member.replica.repairer.repaired_count for member in group.running()) >= 1


def test_the_damaged_member_does_not_lead_while_another_can(group: VirtualGroup) -> None:
    """Nobody answers its repairs, so it stays damaged; and it would be the first to ask for votes."""
    flip(group, "n0", 50)
    group.loses = lambda message: isinstance(message, RepairResponse)
    group.start("n0", "n1")
    leader = group.elect()
    assert leader.id == "n1"
    assert faulty(group.members["n0"]) == 1


def test_a_damaged_member_leads_when_no_other_can(group: VirtualGroup) -> None:
    """The other has less of the log: nobody but the damaged one can get its vote."""
    group.start("n0", "n1")
    leader = group.elect()
    group.append(leader, [b"n2 does not get this"])
    group.run_until(group.converged)
    for peer in ("n0", "n1"):
        group.stop(peer)
    flip(group, "n0", 50)
    group.loses = lambda message: isinstance(message, RepairResponse)
    group.start("n0", "n2")
    group.run_for(5000)
    assert group.leader() is None
    assert "damaged" in str(group.members["n0"].replica.member.election_obstacle)
    group.run_until(group.leader)
    assert group.members["n0"].replica.member.role is Role.LEADER


def test_a_range_whose_neighbour_behind_is_damaged_later_goes_on_over_it(group: VirtualGroup) -> None:
    """Nobody reads it, and the entry behind is what proves the peers' bytes."""
    flip(group, "n0", 50)
    group.loses = lambda message: isinstance(message, RepairResponse)
    group.start()
    group.run_until(group.leader)
    member = group.members["n0"]
    range_before = told(member).faulty
    flip(group, "n0", range_before.next_pos)
    group.loses = lambda message: False
    group.run_until(lambda: not faulty(member))
    assert range_before.last_index == 0
    assert member.replica.repairer.repaired_count == 1
    group.run_until(lambda: is_level(group))


@pytest.mark.parametrize(
    ("own", "others", "damaged"),
    [
        (3, 3, [0, 1]),
        (4, 6, [1, 2]),
        (10, 4, [5, 6, 7, 8]),
        (10, 2, [1, 2, 3, 4, 5]),
    ],
    ids=[
        "across where they part",
        "from there on",
        "behind, and the others end in it",
        "the others end in it",
    ],
)
def test_damage_across_the_entry_where_the_groups_history_went_on_without_is_cut(
    tmp_path: Path, own: int, others: int, damaged: list[int]
) -> None:
    """Of what the group never committed nobody has the bytes, and what lies in front of it nobody can prove. `damaged`
    counts from the last entry that all have.
    """
    group, leader = level_group(tmp_path, [b"of all"] * 3)
    last = leader.replica.log.ledger_end_index
    group.loses = lambda message: getattr(message, "leader_id", None) == leader.id
    group.append(leader, [b"of one"] * own)
    group.run_until(lambda: leader.replica.log.durable_index == last + own)
    positions = [leader.replica.log.pos_at(Index(last + number)) for number in damaged]
    group.stop(leader.id)
    group.loses = lambda message: False
    group.append(group.elect(), [b"of the others"] * others)
    group.run_until(group.converged)
    for pos in positions:
        flip(group, leader.id, pos)
    group.start(leader.id)
    member = group.members[leader.id]
    group.run_until(lambda: is_level(group))
    assert not faulty(member)
    group.run_until(lambda: not member.replica.member.doubted)


@pytest.mark.parametrize("committed_count", [1, 3])
@pytest.mark.parametrize("own_count", [1, 2, 3])
def test_damage_of_what_is_committed_and_what_never_was_is_repaired_up_to_there_and_cut_behind(
    tmp_path: Path, committed_count: int, own_count: int
) -> None:
    """Of a member that knows how far the group has committed: that is not cut, and the leader has it."""
    group, leader = level_group(tmp_path, [b"of all"] * 4)
    log = leader.replica.log
    last = log.ledger_end_index
    group.run_until(lambda: leader.replica.member.committed_index == last)
    group.loses = lambda message: getattr(message, "leader_id", None) == leader.id
    group.append(leader, [b"of one"] * 3)
    group.run_until(lambda: log.durable_index == last + 3)
    first, end = Index(last + 1 - committed_count), Index(last + own_count)
    flip_bodies(group, leader, first, end)
    assert find(leader, first, end) == [(first, end)]
    group.run_until(lambda: group.leader() not in (None, leader))
    group.loses = lambda message: False
    other_leader = group.elect()
    third = next(peer for peer in group.peers if peer not in (leader.id, other_leader.id))
    repairer = leader.replica.repairer
    repairer.peer_disconnected(third)
    asked: list[tuple[PeerId, Index]] = []
    send = repairer._send

    def spied(peer: PeerId, request: RepairRequest) -> None:
        if request.last_index == last:
            # One that comes, and now stands in front of who leads.
            repairer.peer_disconnected(third)
            repairer._peers.insert(0, third)
            asked.append((peer, request.first_index))
        send(peer, request)

    repairer._send = spied
    group.append(other_leader, [b"of the others"] * 2)
    lost: list[RepairResponse] = []

    def loses_one(message: Message | RepairMessage) -> bool:
        if not asked or lost or not isinstance(message, RepairResponse):
            return False
        lost.append(message)
        return True

    group.loses = loses_one  # so it is asked for again
    group.run_until(lambda: is_level(group))
    assert {peer for peer, _ in asked} == {other_leader.id}
    assert len(asked) > 1
    assert not faulty(leader)
    group.run_until(lambda: not leader.replica.member.doubted)


def test_without_a_sound_copy_the_member_says_so_and_nothing_is_cut(group: VirtualGroup) -> None:
    before = group.data_files("n2")
    for peer in group.peers:
        flip(group, peer, 50)
    group.start()
    group.run_for(8_000)
    for member in group.running():
        assert member.failure is None
        assert faulty(member) == 1
        (reason,) = member.replica.repairer.waits.values()
        assert set(reason.values()) == {"damaged there, too"}
    for peer in group.peers:
        damaged = group.data_files(peer)
        assert damaged.keys() == before.keys()
        assert (
            sum(
                one != other
                for name in before
                for one, other in zip(before[name], damaged[name], strict=True)
            )
            == 1
        )


def test_bytes_that_were_changed_on_their_way_are_not_written(group: VirtualGroup) -> None:
    flip(group, "n0", 5000, count=3000)

    def spoil(message: Message | RepairMessage, payload: bytes) -> bytes:
        if isinstance(message, RepairResponse) and message.member_id == "n1" and payload:
            return payload[:-1] + bytes([payload[-1] ^ 1])
        return payload

    group.tamper = spoil
    group.start()
    group.run_until(group.leader)
    group.members["n0"].replica.log.fault_found(0, 50)
    group.run_until(lambda: not faulty(group.members["n0"]))
    group.run_until(lambda: is_level(group))


def test_a_follower_that_lags_gets_what_is_damaged_at_the_leader_when_that_is_repaired(
    group: VirtualGroup, tmp_path: Path
) -> None:
    group.start("n0", "n1")
    leader = group.elect()
    for number in range(40):
        group.append(leader, [b"%4d" % number + bytes(3000)])
        group.run_for(2)
    group.run_until(group.converged)
    first = leader.replica.log.ledger_end_index - 20
    pos = leader.replica.log.pos_at(first)
    for peer in ("n0", "n1"):
        group.stop(peer)
    for path in (tmp_path / f"dledger-{leader.id}" / "data").iterdir():
        if int(path.name) <= pos < int(path.name) + group.data_file_size:
            content = bytearray(path.read_bytes())
            content[pos - int(path.name) + 100] ^= 1
            path.write_bytes(content)
    group.start()
    group.run_until(lambda: is_level(group))


def test_an_index_unit_that_is_wrong_stops_nobody(group: VirtualGroup) -> None:
    for at in (32 * 7 + 5, 32 * 40 + 11, 32 * 90 + 20):
        flip(group, "n1", at, kind="index")
    group.start()
    group.run_until(lambda: is_level(group))
    log = group.members["n1"].replica.log
    log.fault_found(0, log.ledger_end_index)
    files = [
        sorted((group.directory / f"dledger-{peer}" / "index").iterdir())[0].read_bytes()
        for peer in ("n0", "n1")
    ]
    assert files[0] == files[1]


def with_damage_where_others_begin_later(
    group: VirtualGroup, deleted_by: int
) -> tuple[VirtualMember, VirtualMember, PeerId]:
    """The leader, one follower and the id of the other, which comes back with an entry damaged that the leader, or
    both, have deleted.
    """
    group.start()
    leader = group.elect()
    follower, damaged = (member for member in group.running() if member is not leader)
    for member in (leader, follower)[:deleted_by]:
        group.delete_files(member, 2)
    group.crash(damaged.id)
    flip(group, damaged.id, 50)
    return leader, follower, damaged.id


def test_what_all_others_have_deleted_is_given_up_and_all_behind_it_kept(group: VirtualGroup) -> None:
    leader, _, damaged = with_damage_where_others_begin_later(group, 2)
    carried = 0

    def count(message: Message | RepairMessage, payload: bytes) -> bytes:
        nonlocal carried
        carried += len(payload)
        return payload

    group.tamper = count
    end_index = leader.replica.log.ledger_end_index
    group.start(damaged)
    member = group.members[damaged]
    group.run_until(lambda: not faulty(member))
    begin = leader.replica.log.ledger_begin_index
    assert begin > 0
    assert member.replica.log.ledger_begin_index == begin
    assert (member.replica.log.ledger_end_index, member.replica.log.durable_index) == (end_index, end_index)
    assert not member.replica.member.doubted
    group.run_until(lambda: group.converged() and member.replica.idle)
    assert carried == 0, "what lies behind the damage is still there"
    assert member.journal.begun_behind == [begin - 1]
    assert member.replica.repairer.begun_behind_count == 1
    assert member.journal.committed_indexes[-1] == end_index
    assert member.journal.cuts == []
    assert group.data_files(damaged).keys() == group.data_files(leader.id).keys()
    group.crash(damaged)
    group.start(damaged)
    group.run_until(group.converged)
    again = group.members[damaged]
    assert (again.replica.log.ledger_begin_index, faulty(again)) == (begin, 0)
    assert not again.replica.member.doubted


def test_what_was_applied_before_it_was_damaged_need_not_be_applied_again(group: VirtualGroup) -> None:
    leader, _, damaged = with_damage_where_others_begin_later(group, 2)
    group.start(damaged)
    member = group.members[damaged]
    member.replica.applied_index = leader.replica.log.ledger_begin_index
    group.run_until(lambda: not faulty(member))
    assert member.replica.log.ledger_begin_index == leader.replica.log.ledger_begin_index
    assert member.journal.begun_behind == []


def test_nothing_is_given_up_that_one_other_still_has(group: VirtualGroup) -> None:
    _, _, damaged = with_damage_where_others_begin_later(group, 1)
    group.start(damaged)
    member = group.members[damaged]
    group.run_until(lambda: not faulty(member))
    assert member.replica.repairer.repaired_count == 1
    assert member.replica.log.ledger_begin_index == 0
    assert member.journal.begun_behind == []


@pytest.mark.parametrize("silent", ["leader", "follower"])
def test_nothing_is_given_up_while_a_peer_that_is_there_has_not_answered(
    group: VirtualGroup, silent: str
) -> None:
    leader, follower, damaged = with_damage_where_others_begin_later(group, 2)
    silent_id = leader.id if silent == "leader" else follower.id
    group.loses = lambda message: isinstance(message, RepairResponse) and message.member_id == silent_id
    group.start(damaged)
    member = group.members[damaged]
    group.run_until(lambda: "no answer" in str(member.replica.repairer.waits))
    group.run_for(7000)
    assert (member.replica.log.ledger_begin_index, faulty(member)) == (0, 1)
    group.loses = lambda message: False
    group.run_until(lambda: not faulty(member))
    assert member.replica.log.ledger_begin_index == leader.replica.log.ledger_begin_index


def test_nothing_is_given_up_without_the_leader(group: VirtualGroup) -> None:
    """It may have the entries, and so may be the only one that can lead."""
    leader, follower, damaged = with_damage_where_others_begin_later(group, 2)
    group.crash(leader.id)
    group.loses = lambda message: isinstance(message, VoteRequest)
    group.start(damaged)
    member = group.members[damaged]
    group.run_until(lambda: member.replica.repairer.waits)
    group.run_for(6000)
    assert follower.up
    assert (member.replica.log.ledger_begin_index, faulty(member)) == (0, 1)


def test_a_leader_whose_damage_no_follower_can_repair_lets_another_lead_first(group: VirtualGroup) -> None:
    group.start()
    leader = group.elect()
    for member in group.running():
        if member is not leader:
            group.delete_files(member, 2)
    flip(group, leader.id, 50)
    leader.replica.log.fault_found(0, 0)
    assert faulty(leader) == 1
    group.run_until(lambda: leader.replica.member.role is not Role.LEADER)
    assert leader.replica.log.ledger_begin_index == 0, "not while it leads"
    group.run_until(lambda: group.leader() and not faulty(leader))
    assert group.leader() is not leader
    assert leader.replica.log.ledger_begin_index > 0
    group.run_until(group.converged)
    assert [member.failure for member in group.running()] == [None] * 3
