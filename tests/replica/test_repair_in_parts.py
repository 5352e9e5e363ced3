"""Damage of which nobody has all: parts of peers, and what lies behind them on the member's own disk."""

from pathlib import Path

import pytest
from test_repair import append_to_one, faulty, find, flip, flip_bodies, is_level
from virtual_group import DATA_FILE_SIZE, MESSAGE_DELAY_MS, VirtualGroup, VirtualMember, level_group

from dledger.core.messages import Message, PeerId, PushRequest
from dledger.core.output import Role
from dledger.entry import ENTRY_HEADER_SIZE, Index
from dledger.log.log_repair import RangeRepair
from dledger.rpc.requests import RepairMessage, RepairResponse
from dledger.rpc.response_code import ResponseCode


def ask_in_order(member: VirtualMember, *peers: PeerId) -> None:
    for peer in peers:
        member.replica.repairer.peer_disconnected(peer)
        member.replica.repairer.peer_connected(peer)


def group_of_one_log(tmp_path: Path, *, near_file_end: bool) -> tuple[VirtualGroup, VirtualMember]:
    """All have the same entries; and who leads."""
    group, leader = level_group(tmp_path, [b"of all"] * 4)
    while near_file_end and leader.replica.log.ledger_end_pos < DATA_FILE_SIZE - 5000:
        group.append(leader, [bytes(3000)])
        group.run_for(10)
    group.run_until(group.converged)
    return group, leader


def leads_again(group: VirtualGroup, peer: PeerId) -> VirtualMember:
    """It starts, knows all that is committed, and is handed the leadership."""
    group.start(peer)
    group.run_until(group.converged)
    leader = group.members[peer]
    group.run_until(lambda: leader.replica.member.committed_index == leader.replica.log.ledger_end_index)
    assert group.elect().replica.transfer_leadership(peer, "it is to have the damage", group.now_ms) is None
    group.run_until(lambda: group.leader() is leader and group.converged())
    return leader


@pytest.mark.parametrize("lies", ["in one file", "at a file's end", "behind a blank that is damaged, too"])
def test_of_damage_that_takes_the_next_entry_with_it_others_need_not_have_that_one(
    tmp_path: Path, lies: str
) -> None:
    """Nothing proves an entry whose predecessor is gone with its chain, until that is given: by who has no more."""
    group, leader = group_of_one_log(tmp_path, near_file_end=lies != "in one file")
    log = leader.replica.log
    last = log.ledger_end_index
    _, other = (member for member in group.running() if member is not leader)
    append_to_one(group, leader, [b"of one" * 1000] * 3)
    group.stop(other.id)
    is_in_next_file = log.pos_at(Index(last + 1)) != log.end_pos_at(last)
    assert is_in_next_file == (lies != "in one file")
    flip(group, leader.id, log.pos_at(last), count=ENTRY_HEADER_SIZE + 6)
    if lies == "behind a blank that is damaged, too":
        flip(group, leader.id, log.end_pos_at(last), count=200)
    assert find(leader, last, last) == [(last, last + 1)]
    group.loses = lambda message: False
    group.run_until(lambda: group.converged() and not faulty(leader))
    assert group.leader() is leader
    group.start(other.id)
    group.run_until(lambda: is_level(group))
    assert log.body_at(Index(last + 1)) == b"of one" * 1000


@pytest.mark.parametrize(
    "body", [b"of the other", b"of the other" * 1000, b""], ids=["same size", "larger", "none"]
)
@pytest.mark.parametrize("lies", ["in one file", "at a file's end"])
def test_who_has_the_damaged_entries_may_have_others_behind_them(
    tmp_path: Path, lies: str, body: bytes
) -> None:
    """The leader's last entries are its alone, as those of the only other one are: what both have in common comes from
    there, and what is the leader's own lies here.
    """
    group, other = group_of_one_log(tmp_path, near_file_end=lies != "in one file")
    last = other.replica.log.ledger_end_index
    if body:
        append_to_one(group, other, [body] * 3)
    group.crash(other.id)
    group.loses = lambda message: isinstance(message, PushRequest)
    group.run_until(lambda: any(member.replica.member.role is Role.LEADER for member in group.running()))
    (leader,) = (member for member in group.running() if member.replica.member.role is Role.LEADER)
    group.run_until(lambda: leader.replica.log.durable_index == last + 1)
    (gone,) = (member.id for member in group.running() if member is not leader)
    group.crash(gone)
    group.run_until(lambda: leader.replica.member.role is not Role.LEADER)
    group.start(other.id)
    own = leader.replica.log
    group.run_until(lambda: own.durable_index == last + 2)  # the no-ops of its two terms
    own_entry = own.body_at(Index(last + 1))
    flip(group, leader.id, own.pos_at(last), count=ENTRY_HEADER_SIZE + 6)
    assert find(leader, last, last) == [(last, last + 1)]
    group.loses = lambda message: False
    group.run_until(lambda: group.converged() and not faulty(leader))
    assert group.leader() is leader
    assert own.body_at(Index(last + 1)) == own_entry
    group.start(gone)
    group.run_until(lambda: is_level(group))


def test_what_lies_here_may_be_damaged_while_what_is_in_front_of_it_comes(tmp_path: Path) -> None:
    group, leader = level_group(tmp_path, [b"of all"] * 4)
    log = leader.replica.log
    last = log.ledger_end_index
    append_to_one(group, leader, [b"of one"] * 3)
    flip(group, leader.id, log.pos_at(last), count=ENTRY_HEADER_SIZE + 6)
    behind = log.pos_at(Index(last + 1))
    answers: list[Index] = []

    def damage_behind(message: Message | RepairMessage, payload: bytes) -> bytes:
        if isinstance(message, RepairResponse) and message.code is ResponseCode.SUCCESS:
            answers.append(message.last_index)
            if len(answers) == 2:
                flip(group, leader.id, behind + 50)
        return payload

    group.tamper = damage_behind
    assert find(leader, last, last) == [(last, last + 1)]
    group.run_until(lambda: leader.replica.repairer.waits)
    assert len(answers) > 2, "the first was proved anew"
    assert [(faulty.first_index, faulty.last_index) for faulty in log.faulty] == [(last + 1, last + 1)]
    assert not leader.failure


def test_what_one_peer_has_proved_another_may_give(tmp_path: Path) -> None:
    group, leader = level_group(tmp_path, [bytes(30_000)] * 5)
    last = leader.replica.log.ledger_end_index
    flip_bodies(group, leader, last - 4, last - 1)
    one, other = (member.id for member in group.running() if member is not leader)
    ask_in_order(leader, one, other)
    answers: list[tuple[PeerId, Index]] = []

    def go_in_the_second_round(message: Message | RepairMessage, payload: bytes) -> bytes:
        if isinstance(message, RepairResponse):
            answers.append((message.member_id, message.first_index))
            if answers.count((one, Index(last - 4))) == 2 and other not in dict(answers):
                group.at(group.now_ms + MESSAGE_DELAY_MS + 1, lambda: group.crash(one))
        return payload

    group.tamper = go_in_the_second_round
    assert find(leader, last - 4, last - 1) == [(last - 4, last - 1)]
    group.run_until(lambda: not faulty(leader))
    first_indexes = [index for peer, index in answers if peer == other]
    assert first_indexes == sorted(first_indexes)
    assert first_indexes[0] > last - 4, "what was written counts"
    group.start(one)
    group.run_until(lambda: is_level(group))


@pytest.mark.parametrize("size", [1, 30_000], ids=["in one piece", "across a file border"])
@pytest.mark.parametrize("asked", ["first", "last", "first, and gone since"])
def test_who_has_the_right_entries_is_not_refused_for_what_another_gave_in_front(
    tmp_path: Path, asked: str, size: int
) -> None:
    """A member has one entry of an earlier leader where the group has others, and is asked before that is cut."""
    group, old_leader = level_group(tmp_path, [b"of all"] * 3)
    last = old_leader.replica.log.ledger_end_index
    group.run_until(lambda: old_leader.replica.member.committed_index == last)
    append_to_one(group, old_leader, [b"of one"])
    group.crash(old_leader.id)
    group.loses = lambda message: False
    leader = group.elect()
    group.append(leader, [b"of the others" + bytes(size)] * 6)
    group.run_until(group.converged)
    (other,) = (member.id for member in group.running() if member is not leader)
    group.loses = lambda message: isinstance(message, PushRequest)
    group.start(old_leader.id)
    flip_bodies(group, leader, last + 1, last + 4)
    ask_in_order(leader, *((other, old_leader.id) if asked == "last" else (old_leader.id, other)))
    gave: list[Index] = []

    def go_when_asked(message: Message | RepairMessage, payload: bytes) -> bytes:
        is_answer = isinstance(message, RepairResponse) and message.code is ResponseCode.SUCCESS
        if is_answer and message.member_id == old_leader.id and not gave:
            gave.append(message.last_index)
            if asked == "first, and gone since":
                group.at(group.now_ms + MESSAGE_DELAY_MS + 1, lambda: group.crash(old_leader.id))
        return payload

    group.tamper = go_when_asked
    assert find(leader, last + 1, last + 4) == [(last + 1, last + 4)]
    group.run_until(lambda: not faulty(leader))
    assert group.leader() is leader
    assert not leader.replica.repairer.waits
    assert gave == ([] if asked == "last" else [last + 1])
    if asked == "first, and gone since":
        group.start(old_leader.id)
    group.loses = lambda message: False
    group.run_until(lambda: is_level(group))


@pytest.mark.parametrize("is_first", [True, False], ids=["asked first", "asked last"])
@pytest.mark.parametrize("kinds", [("data",), ("data", "index")])
def test_entries_of_before_are_not_proved_by_who_has_the_first_of_them(
    tmp_path: Path, kinds: tuple[str, ...], is_first: bool
) -> None:
    """They have come back on the leader's disk, and another one has two of them still: those lead into these, and not
    on to what lies behind.
    """
    group = VirtualGroup(tmp_path, 5)
    group.start()
    old_leader = group.elect()
    group.append(old_leader, [b"of all" * 7] * 50)
    group.run_until(group.converged)
    last = old_leader.replica.log.ledger_end_index
    one, *others = (peer for peer in group.peers if peer != old_leader.id)
    for peer in others:
        group.crash(peer)
    group.append(old_leader, [b"of %d" % number * 7 for number in range(2)])
    group.run_until(lambda: group.members[one].replica.log.durable_index == last + 2)
    group.crash(one)
    group.append(old_leader, [b"of %d" % number * 7 for number in range(2, 5)])
    log = old_leader.replica.log
    group.run_until(lambda: log.durable_index == last + 5)
    places = {
        "data": (log.pos_at(Index(last + 1)), log.ledger_end_pos),
        "index": ((last + 1) * 32, (last + 6) * 32),
    }
    group.crash(old_leader.id)
    files = {kind: min((tmp_path / f"dledger-{old_leader.id}" / kind).iterdir()) for kind in places}
    stale = {kind: path.read_bytes() for kind, path in files.items()}
    group.start(*others)
    group.append(group.elect(), [b"B%d" % number * 20 for number in range(30)])
    group.run_until(group.converged)
    bodies = {Index(index): group.elect().replica.log.body_at(Index(index)) for index in range(last + 31)}
    leader = leads_again(group, old_leader.id)
    for kind in kinds:
        begin, end = places[kind]
        with files[kind].open("r+b") as file:
            file.seek(begin)
            file.write(stale[kind][begin:end])
    group.loses = lambda message: isinstance(message, PushRequest)
    group.start(one)
    ask_in_order(leader, *((one, *others) if is_first else (*others, one)))
    assert find(leader, last + 1, last + 7) != []
    group.loses = lambda message: False
    group.run_until(lambda: group.converged() and not any(map(faulty, group.running())))
    for member in group.running():
        assert not member.failure
        assert {index: member.replica.log.body_at(index) for index in bodies} == bodies


def test_where_entries_of_before_come_to_an_end_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them follows the peer's in front of it, and from none of them it goes on to what lies behind."""
    group = VirtualGroup(tmp_path, 5)
    group.data_file_size = 1 << 20
    group.start()
    old_leader = group.elect()
    group.append(old_leader, [b"of all"] * 50)
    group.run_until(group.converged)
    log = old_leader.replica.log
    last = log.ledger_end_index
    one, *others = (peer for peer in group.peers if peer != old_leader.id)
    for peer in others:
        group.crash(peer)
    group.append(old_leader, [b"of %d" % number * 7 for number in range(100, 160)])
    group.run_until(lambda: group.members[one].replica.log.durable_index == last + 60)
    begin, end = log.pos_at(Index(last + 1)), log.pos_at(Index(last + 51))
    group.crash(one)
    group.crash(old_leader.id)
    path = min((tmp_path / f"dledger-{old_leader.id}" / "data").iterdir())
    stale = path.read_bytes()
    group.start(*others)
    group.append(group.elect(), [b"B%d" % number * 7 for number in range(100, 200)])
    group.run_until(group.converged)
    leader = leads_again(group, old_leader.id)
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(stale[begin:end])
    group.loses = lambda message: isinstance(message, PushRequest)
    group.start(one)
    ask_in_order(leader, one, *others)
    looks = []
    goes_on_here = RangeRepair.goes_on_here

    def counted(repair: RangeRepair) -> bool:
        looks.append(repair.next_index)
        return goes_on_here(repair)

    monkeypatch.setattr(RangeRepair, "goes_on_here", counted)
    assert find(leader, last + 1, last + 7) != []
    group.loses = lambda message: False
    group.run_until(lambda: group.converged() and not any(map(faulty, group.running())))
    assert len(looks) in (1, 2)
    assert not leader.failure
