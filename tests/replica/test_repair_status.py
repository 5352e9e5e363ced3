"""What a repair says of itself, and what it knows of a range that is written in part."""

from test_repair import faulty, flip, is_level, told
from virtual_group import VirtualGroup, VirtualMember

from dledger.core.messages import Message
from dledger.entry import Index
from dledger.log.faulty_ranges import FaultyRange
from dledger.repair_status import RepairStage
from dledger.rpc.requests import RepairMessage, RepairRequest, RepairResponse


def test_the_status_of_a_repair_says_what_is_damaged_where_and_whose_answer_is_waited_for(
    group: VirtualGroup,
) -> None:
    flip(group, "n0", 50, file=1)
    group.loses = lambda message: isinstance(message, RepairResponse)
    group.start()
    member = group.members["n0"]
    assert told(member).stage is RepairStage.QUEUED
    group.run_until(lambda: told(member).peer)
    status = told(member)
    assert status.stage is RepairStage.PROVING
    assert (status.refusals, status.written_size, status.retry_ms) == ({}, 0, None)
    (name,) = status.files
    assert int(name) <= status.faulty.pos < int(name) + member.replica.config.data_file_size
    first = status.peer
    group.run_until(lambda: told(member).peer not in (first, None))
    assert told(member).refusals == {first: "no answer within 2000 ms"}
    group.run_until(lambda: told(member).stage is RepairStage.WAITING)
    waiting = told(member)
    assert waiting.refusals.keys() == {"n1", "n2"}
    assert waiting.peer is None
    assert waiting.retry_ms == group.now_ms + member.replica.config.repair_retry_ms
    assert waiting.since_ms == status.since_ms
    group.loses = lambda message: False
    group.run_until(lambda: not faulty(member))
    repaired = member.replica.repairer.status()
    assert (repaired.repaired_count, repaired.ranges) == (1, ())
    assert repaired.repaired_size >= status.faulty.size


def in_pieces_of_which_one_comes(group: VirtualGroup) -> tuple[VirtualMember, list[RepairRequest]]:
    """A member with a range over several files of which peers give one piece to write and no more, and what it asked
    for to write."""
    group.start()
    member, log = group.members["n0"], group.members["n0"].replica.log
    group.run_until(group.leader)
    log.note_damage(FaultyRange(Index(3), Index(150), log.pos_at(Index(3)), log.end_pos_at(Index(150))))
    asked: list[RepairRequest] = []

    def lose_all_but_the_first_to_write(message: Message | RepairMessage) -> bool:
        is_request = isinstance(message, RepairRequest) and told(member).stage is RepairStage.WRITING
        if is_request:
            asked.append(message)
        return bool(asked[1:]) and isinstance(message, RepairRequest)

    group.loses = lose_all_but_the_first_to_write
    return member, asked


def test_the_status_counts_bytes_as_they_are_written(group: VirtualGroup) -> None:
    member, asked = in_pieces_of_which_one_comes(group)
    group.run_until(lambda: len(asked) > 1)
    status = told(member)
    assert status.stage is RepairStage.WRITING
    assert 0 < status.written_size < status.faulty.size


def test_of_a_range_that_is_written_in_part_what_is_sound_need_not_come_from_a_peer(
    group: VirtualGroup,
) -> None:
    """Entries behind the damage were in the range for want of proof, and nobody else may have them any more."""
    flip(group, "n0", 5000)
    member, asked = in_pieces_of_which_one_comes(group)
    group.run_until(lambda: not faulty(member))
    assert len(asked) > 1
    assert member.replica.repairer.repaired_count == 1
    group.run_until(lambda: is_level(group))


def with_the_last_piece_under_way(group: VirtualGroup) -> VirtualMember:
    """A member with one range, all of which is being written."""
    flip(group, "n0", 50)
    group.start()
    member = group.members["n0"]
    member.job_delays_ms["cut"] = 1000  # that of repairs
    group.run_until(lambda: told(member).stage is RepairStage.WRITING)
    group.run_for(500)
    assert (told(member).written_size, told(member).peer) == (0, None), "the job is under way"
    return member


def test_a_range_that_grows_while_the_last_of_it_is_written_need_not_come_whole_from_a_peer(
    group: VirtualGroup,
) -> None:
    """What it has grown by may be sound, or have been written with it, and nobody be left who gives it once more."""
    member = with_the_last_piece_under_way(group)
    before, log = told(member), member.replica.log
    last_index = Index(before.faulty.last_index + 1)
    log.note_damage(
        FaultyRange(before.faulty.first_index, last_index, before.faulty.pos, log.end_pos_at(last_index))
    )
    group.loses = lambda message: isinstance(message, RepairResponse)
    group.run_until(lambda: not faulty(member))
    assert member.replica.repairer.repaired_count == 1
    group.run_until(lambda: is_level(group))


def test_what_was_written_of_a_range_that_is_gone_has_no_other_looked_at(group: VirtualGroup) -> None:
    """It may hold what was written of that one and could not be synced."""
    member = with_the_last_piece_under_way(group)
    log = member.replica.log
    log.faulty.remove(told(member).faulty)  # as where retention takes it
    group.run_for(1000)
    assert member.replica.repairer.repaired_size
    group.loses = lambda message: isinstance(message, RepairResponse)
    log.note_damage(FaultyRange(Index(3), Index(5), log.pos_at(Index(3)), log.end_pos_at(Index(5))))
    group.run_until(lambda: told(member).stage is RepairStage.WAITING)
    assert told(member).refusals.keys() == {"n1", "n2"}


def test_a_range_that_grows_is_known_for_as_long_as_its_oldest_part(group: VirtualGroup) -> None:
    flip(group, "n0", 50)
    group.loses = lambda message: isinstance(message, RepairResponse)
    group.start()
    member, log = group.members["n0"], group.members["n0"].replica.log
    group.run_until(lambda: told(member).since_ms)
    before = told(member)
    group.run_for(500)
    last_index = before.faulty.last_index + 3
    log.note_damage(
        FaultyRange(before.faulty.first_index, last_index, before.faulty.pos, log.end_pos_at(last_index))
    )
    assert told(member).since_ms is None
    group.run_for(100)
    assert (told(member).faulty.last_index, told(member).since_ms) == (last_index, before.since_ms)
