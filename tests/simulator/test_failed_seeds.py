"""Seeds that failed once, under the name of what was wrong. What each found has a test of its own as well, since a
change anywhere in the code under test changes what a seed does.
"""

import pytest

from simulator.harness.run import Outcome, run_seed

FAILED_ONCE = {
    # A member without a quorum state was formed while it stored the term of its last entry, and ended by an assertion.
    "formed_while_its_term_is_being_stored": 36,
    # Damaged entries that the other members had deleted meanwhile were waited for for ever.
    "damaged_here_deleted_elsewhere": 5194,
    # No space to note what is damaged ended the member, and damaged index units shifted the entries of a cold batch.
    "no_space_to_note_damage": 112,
    # A repair whose sync had failed counted as done after a restart, for it read as sound.
    "repair_never_written_back": 63,
    # The simulator did not know an entry that the leader of its commit had damaged, and ended by that.
    "committed_under_a_leader_that_has_it_damaged": 30040,
    # Behind damage the last entry was not known for sound: nobody could repair a range that ends with an entry which
    # the group had never committed.
    "damaged_in_front_of_what_is_to_be_cut": 40202,
    # The scrub did not look at the unit of the entry behind a damaged one.
    "unit_behind_damage": 40363,
    # A member that had gone and came back under the same leader got one push window a second.
    "came_back_in_the_same_term": 60013,
    # The simulator counted the blank of a file for an entry, where a sync had failed.
    "blank_never_written_back": 50003,
    # The simulator took damage that was done while a range was being repaired for one that the repair had left.
    "damaged_behind_the_repair": 50117,
    # The entry behind a damaged range was damaged later: no peer's bytes were right any more, for ever.
    "damaged_behind_a_range": 60651,
    # The scrub passed over the blank of a file behind a damaged entry.
    "blank_behind_damage": 60134,
    # A first start was ended between a directory and its sync: the next one took the name for durable.
    "directory_never_synced": 100232,
    # The simulator took away the host of a leader that had just taken its own vote, in the middle of its step.
    "leader_replaced_by_itself": 200039,
    # A push had waited for a cut, and its leader got the vote of its term before that was done: the member ended.
    "voted_for_its_leader_during_a_cut": 400983,
    # An index unit told of an entry longer than its file: a read of it ended the member.
    "unit_of_an_entry_beyond_its_file": 401909,
    # One piece of a range was repaired, the peer of the next one went, and then nobody else had what was sound here.
    "sound_but_not_proved_behind_a_repair": 401285,
    # The simulator took damage for repaired that a power loss brought back: the repair had been written, not synced.
    "damage_back_by_a_power_loss": 401490,
    # A start took the length of a file for durable that one before it had made and not synced.
    "length_never_synced": 500113,
    # A damaged index unit said that a far entry lay in the file at hand: a range went over the file's end.
    "range_beyond_its_file": 540733,
    # A leader that was taking itself out restarted: it alone held that entry, and would not lead without a vote.
    "needed_to_leave": 540844,
    # Damage held entries that the group had never committed, and was waited for for ever.
    "damage_that_nobody_need_give": 541446,
    # A doubt that had ended was in the synced mark for as long as nothing moved that: a kill brought it back.
    "doubt_back_by_a_kill": 560097,
    # A cut's sync failed, and the one before it, still under way, was told that all is well.
    "sync_fails_beside_another": 610371,
    # The simulator knew no way from a leader to a learner whose host had gone before that leader's came.
    "learner_gone_before_its_leader_came": 620114,
    # A cut was done in the page cache alone when its member was killed: a power loss had the next start redo it, over
    # what had been synced since.
    "cut_redone_over_what_came_after_it": 634963,
    # Damage went over from what the group had committed to what it never did: waited for for ever.
    "damage_across_the_commit": 635341,
    "damaged_units_on_the_way_to_a_position": 651161,
    "crash_point_while_looked_at": 661530,
    "crash_point_behind_an_acknowledgement": 662129,
    # A leader with damage in what nobody else had went on leading, and could commit nothing any more.
    "leader_alone_had_what_it_cannot_read": 675887,
    # A look at entries that are still called damaged led, by a unit that was damaged as well, behind the file's end.
    "damaged_unit_of_what_is_still_damaged": 688203,
    # A place was damaged a second time, and the simulator took that for the damage of before, which had been repaired.
    "same_place_damaged_twice": 689847,
    # What had been cut with damage in it, and zeroed, was still called damage by the simulator, while nobody led.
    "cut_with_its_damage": 700111,
    # The simulated disk let a sync in one thread make another's unlink durable that had not happened yet.
    "unlinked_before_its_time": 1512,
    # A member lost the only data file that an earlier loss had left it, without which it does not start.
    "last_file_lost": 750586,
    # A range went over into entries that were never committed, which another member held as well and gave.
    "repaired_as_it_was_there": 770014,
    # Of three one had lost its disk, came to hold more than the others, and lost its leader, which was doubted since:
    # what an operator then has to do was done by nobody.
    "emptied_by_hand": 802307,
    # IndexFiles were built anew, and of them and their mark a power loss brought back the mark and one of four.
    "index_file_partly_back": 832358,
    # Who had been the only voter, and was none any more, lost all that said so behind its mark, and led by itself.
    "only_voter_of_before": 840162,
    # The log came to begin with damage while that was being repaired, or while the entry before it was remembered.
    "repaired_at_the_begin_of_meanwhile": 871402,
    "entry_before_the_begin_remembered": 870978,
    # The synced mark is lost: of a log that began anew and has no entry yet, of one that begins behind an entry of
    # which nothing else tells, and of an empty one that counted as sound.
    "mark_of_an_empty_log_lost": 960537,
    "entry_before_the_begin_unknown": 960721,
    "empty_log_not_doubted": 960699,
    # A blank was lost in front of an entry that was known to be damaged: each round of the scrub called it mended.
    "blank_before_known_damage": 1005320,
    # A file was lost of which a mark in the page cache covered more than that on the medium: of the rest the simulator
    # took the zeros for what the group had written, when it took the file once more.
    "lost_again_before_it_was_back": 1010840,
    "lost_with_what_was_not_committed": 1012889,
    # What a lost write brought back was an entry that the leader had written twice, first without space for its unit.
    "entry_written_twice": 1021989,
    # One place was damaged, repaired and damaged again between two rounds of the scrub, and taken for one damage.
    "damaged_again_after_its_repair": 1029453,
    # A sync of 110 files had begun on a slow disk, and went on for longer than the group was given to come to rest.
    "sync_of_many_files_on_a_slow_disk": 1029943,
    # A leader's damage took the next entry with it, which nobody else had yet: nobody could give both, or get any.
    "damage_over_what_nobody_else_has": 1020628,
    # Zeros made the last marked entry of a file whole that was cut short, so that nobody doubted what lay behind it.
    "cut_short_within_zeros_at_the_mark": 1031675,
    # A late heartbeat of an earlier term was answered in the present one, which the same member led: a stale read.
    "answer_to_a_round_of_an_earlier_term": 1034494,
    # Entries that a leader had taken back for want of space came back in the place of those that it sent after them.
    "taken_back_and_back_again": 1048214,
    # Changes of the members that a full disk refused put the probe for space off for as long as they were asked for.
    "probe_put_off_by_what_was_refused": 1050354,
    # Who had what was damaged at the leader had another entry behind it, of its own, and was refused for that.
    "damage_in_front_of_where_histories_part": 1053782,
    # A log that was to begin anew when power went and its mark was lost: what lay in front nobody knows, nor has to.
    "begin_forgotten_where_one_was_to_be_anew": 1071211,
    # What was on its way to a process came to the next one on that host, which took it for what its leader said to it.
    "commit_told_to_the_life_before": 1078074,
    # Behind the damage lay an entry that the group has not committed, and that follows from what is the member's own.
    "other_history_behind_what_is_committed": 1074030,
    # A leader that had thousands of entries to send, in small pushes, was emptied as if it kept others from leading.
    "leader_emptied_by_hand": 1093855,
    # A disk was wiped in the middle of the first start, and came back before one had noticed: two groups were formed.
    "disk_wiped_while_the_group_is_formed": 1096051,
    # A checkpoint had its queues begin where the log's begin had not durably come to, and a crash brought that back.
    "queues_behind_a_begin_that_fell": 1107476,
    # A leader fell in the very write that took a vote; of the two left, whom only its log named, the other was wiped.
    "wiped_while_a_log_says_what_nobody_saw": 1116044,
    # More timers than one look at their queue takes in had ended before a restart: those behind them never came.
    "timers_behind_many_that_ended": 468,
    # A recall lay in damaged entries, and what it recalls was delivered before they were repaired.
    "recall_in_damaged_entries": 930267,
    # A FIFO message was made a dead letter while it was being popped again, and once more when that pop was over.
    "fifo_message_dead_twice": 954051,
    # A FIFO pop did not see that a message's time was being changed, and gave its queue to another client.
    "fifo_pop_beside_a_change": 955617,
    # The simulator took queues for drained before the last committed message was in them.
    "drained_before_it_is_applied": 959764,
    # The simulator did not count what a voter had acknowledged in the step in which it fell.
    "acknowledged_and_fallen": 959836,
}

# Those that take 3 s and longer.
WITH_LONG = {
    "blank_before_known_damage",
    "crash_point_behind_an_acknowledgement",
    "empty_log_not_doubted",
    "entry_before_the_begin_unknown",
    "index_file_partly_back",
    "leader_emptied_by_hand",
    "learner_gone_before_its_leader_came",
    "probe_put_off_by_what_was_refused",
    "sync_of_many_files_on_a_slow_disk",
    "unlinked_before_its_time",
}

# Likewise, in calm lives.
FAILED_ONCE_CALM = {
    # The log began behind damage while the scrub of ConsumeQueues read it, which then asked for entries before the log.
    "began_behind_what_the_scrub_reads": 60384,
    # A ConsumeQueue of which all messages had expired began anew far behind the file that it still had.
    "queue_begins_behind_a_gap": 540864,
    # A group at rest ticked too seldom for its scrub.
    "scrub_behind_its_rate": 560448,
    # Four data files came back two entries at a time, and were not whole within half a minute.
    "files_repaired_by_small_pushes": 1002720,
    "files_repaired_by_small_pushes_again": 1005888,
    # Stale entries lay in front of known damage, which the leader had deleted: who had it was not believed.
    "stale_where_the_leader_has_deleted": 1008640,
    # IndexFiles went with the log's begin before that was durable, and a power loss brought it back.
    "index_file_behind_a_begin_that_fell": 1018080,
    # One had come last, and nine thousand entries in small pushes took longer than the members had to be level.
    "sent_by_small_pushes": 1097664,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long) if name in WITH_LONG else name for name in FAILED_ONCE],
)
def test_a_seed_that_failed_once_passes(name):
    result = run_seed(FAILED_ONCE[name])
    assert result.outcome is Outcome.PASSED, result.report


# Most of them take 20 to 80 s each; what they found has a test of its own in its room.
@pytest.mark.long
@pytest.mark.parametrize("name", FAILED_ONCE_CALM)
def test_a_calm_seed_that_failed_once_passes(name):
    result = run_seed(FAILED_ONCE_CALM[name], is_calm=True)
    assert result.outcome is Outcome.PASSED, result.report
