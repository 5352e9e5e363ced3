"""Known bugs put back are caught: the proof that the simulator can find anything at all.

A change anywhere in the code under test changes what a seed does. So a recorded seed is only where the search begins,
and the seed that catches a mutant must be sound without it.
"""

import pytest

from simulator.__main__ import run_with_mutant
from simulator.harness.run import Outcome
from simulator.mutants.mutants import MUTANTS

SEEDS_MAX = 200
# A promise of liveness that is broken is found as that.
CAUGHT = (Outcome.SAFETY, Outcome.LIVENESS)
# Which seed caught it when this was last looked at: scripts/simulate --seeds 1..200 --mutant NAME.
CAUGHT_BY = {
    "vote_forgotten": 300,
    "ack_before_sync": 55,
    "old_term_commit_by_counting": 19,
    "pre_vote_counted_as_vote": 4,
    "truncation_below_commit": 1,
    "stale_answer_accepted": 1,
    "queue_offset_table_not_rebuilt": 21,
    "reput_past_commit": 1,
    "cut_delivery_not_counted": 344,
    "delivery_counted_by_its_record": 344,
    "timer_fired_at_its_slot": 3,
    "cut_timers_not_counted": 9,
    "timers_counted_by_their_record": 68,
    "recall_counts_when_applied": 134,
    "any_full_state_taken": 175,
    "index_file_not_rolled_back": 190,
    "transfer_to_lagging": 6,
    "appends_taken_during_transfer": 6,
    "acks_after_failed_sync": 12,
    "full_leader_keeps_leading": 8,
    "hung_disk_keeps_heart_beating": 8,
    "wall_clock_followed": 2,
    "two_changes_at_once": 20,
    "learner_counted": 16,
    "lost_disk_counted": 1,
    "membership_counts_at_commit": 5,
    "membership_not_taken_back": 81,
    "fault_taken_for_the_end": 24,
    "repair_bytes_not_checked": 15,
    "damaged_member_leads": 24,
    "lost_tail_not_doubted": 49,
    "begin_known_to_the_mark_alone": 391,
    "scrub_skips_bodies": 52,
    "stale_entries_believed": 387,
    "read_index_without_a_round": 24,
    "read_index_before_own_term": 2,
    "unknown_told_as_refused": 1,
    "round_answered_at_append": 1,
    "order_of_a_connection_broken": 1,
    "sends_of_a_connection_dropped": 1,
    "ended_transactions_forgotten": 4,
    "end_counted_by_its_record": 34,
    "cut_end_not_counted": 1130,
    "revival_counted_by_its_record": 29,
    "cut_revival_not_counted": 29,
    "acks_of_a_pop_taken_together": 36,
    "tables_settled_behind_each_step": 67,
    "ack_answered_before_its_record": 36,
    "ack_of_what_is_unknown_here_answered": 2075,
    "acks_on_their_way_hold_up_nothing": 29,
    "pop_answered_before_its_record": 99,
    "access_decided_before_commit": 3,
    "access_told_before_commit": 3,
    "old_decisions_kept": 8,
    "conf_user_counts_for_ever": 27,
    "policies_outlive_their_user": 8,
    "deleted_users_back_after_a_restart": 41,
}
# Of those that take longest the ones that break what others break as well.
WITH_LONG = {
    "ack_of_what_is_unknown_here_answered",
    "any_full_state_taken",
    "hung_disk_keeps_heart_beating",
    "lost_disk_counted",
    "repair_bytes_not_checked",
    "revival_counted_by_its_record",
    "tables_settled_behind_each_step",
    "transfer_to_lagging",
}


def test_each_mutant_has_a_seed():
    assert CAUGHT_BY.keys() == MUTANTS.keys() > WITH_LONG


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant", [pytest.param(name, marks=pytest.mark.long) if name in WITH_LONG else name for name in MUTANTS]
)
def test_a_known_bug_is_caught_and_its_seed_is_sound_without_it(mutant):
    recorded = CAUGHT_BY[mutant]
    others = (seed for seed in range(1, SEEDS_MAX + 1) if seed != recorded)
    caught_by = next(
        (
            seed
            for seed in (recorded, *others)
            if run_with_mutant(seed, member_count=None, mutant=mutant).outcome in CAUGHT
        ),
        None,
    )
    assert caught_by is not None, f"{mutant} went through {SEEDS_MAX} seeds unnoticed"
    assert run_with_mutant(caught_by, member_count=None, mutant=None).outcome is Outcome.PASSED
