"""A group with damage on its disks: repaired from whoever has sound bytes, leader or not, and level in the end."""

from pathlib import Path
from random import Random

import pytest
from virtual_group import VirtualGroup, VirtualMember

from dledger.core.messages import Message, PeerId
from dledger.core.output import Role
from dledger.rpc.requests import RepairMessage, RepairResponse


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


def faulty(member: VirtualMember) -> int:
    return len(member.replica.log.faulty)


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
        assert "damaged there, too" in reason
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
