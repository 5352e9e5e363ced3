from hypothesis import given
from hypothesis import strategies as st

from dledger.core.quorum_ack_checker import quorum_index


@given(st.lists(st.integers(-1, 50), min_size=1, max_size=9))
def test_the_fast_quorum_index_is_the_highest_that_a_majority_reached(watermarks):
    majority = len(watermarks) // 2 + 1
    reached = [mark for mark in watermarks if sum(other >= mark for other in watermarks) >= majority]
    assert quorum_index(watermarks) == max(reached)
