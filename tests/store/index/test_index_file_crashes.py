"""Whatever happens to the disk or the process: a query finds all that the index says it covers, and nothing else."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_file_model import IndexedLog

from store.layout.index_file import IndexFileShape

# Few slots and hashes, so that chains are long and mixed; few entries, so that files are full soon.
HASHES = st.integers(0, 9) | st.just(0x7FFFFFFF)
SHAPES = st.builds(IndexFileShape, st.sampled_from([1, 2, 5, 300]), st.sampled_from([2, 3, 8, 30]))
STEPS = st.one_of(
    st.tuples(st.just("append"), st.lists(st.lists(HASHES, max_size=4), min_size=1, max_size=8)),
    st.tuples(st.just("feed"), st.integers(1, 9)),
    st.tuples(st.just("flush"), st.none()),
    st.tuples(st.just("fail"), st.integers(0, 6)),
    st.tuples(st.just("crash"), st.integers(0, 40)),
    st.tuples(st.just("power loss"), st.integers(0, 40)),
    st.tuples(st.just("reopen"), st.none()),
    st.tuples(st.just("delete"), st.floats(0, 1)),
)


def play(shape: IndexFileShape, seed: int, steps: list[tuple[str, object]]) -> None:
    log = IndexedLog(shape, seed)
    for step, value in steps:
        match step, value:
            case "append", list():
                log.append(*value)
            case "feed", int():
                log.feed(value)
            case "flush", _:
                if log.flush():
                    log.check_files()
            case "fail", int():
                log.fail(value)
            case (("crash" | "power loss"), int()):
                log.crash(value, power_loss=step == "power loss")
            case "reopen", _:
                log.reopen()
                log.check_files()
            case "delete", float():
                log.delete(value)
        log.check_queries()
    log.feed(len(log.messages))
    log.reopen()
    log.check_files()
    log.check_queries()


@settings(max_examples=200, deadline=None)
@given(SHAPES, st.integers(0, 1 << 32), st.lists(STEPS, max_size=25))
@pytest.mark.slow
def test_queries_answer_as_a_plain_table_does_whatever_happens(
    shape: IndexFileShape, seed: int, steps: list[tuple[str, object]]
) -> None:
    play(shape, seed, steps)


def test_a_power_loss_may_bring_back_some_of_the_files_that_were_deleted() -> None:
    steps = [
        ("append", [[0x7FFFFFFF, 0, 0, 0], []]),
        ("feed", 1),
        ("flush", None),
        ("delete", 1.0),
        ("power loss", 9),
    ]
    for seed in range(10):
        play(IndexFileShape(1, 2), seed, steps)


@pytest.mark.slow
def test_flushes_may_be_cut_off_at_any_operation_one_after_the_other() -> None:
    for seed in range(400):
        log = IndexedLog(IndexFileShape(3, 12), seed)
        log.append(*[[number % 5, 7] for number in range(30)])
        for _ in range(3):
            log.feed(log.random.randrange(1, 9))
            if log.random.random() < 0.5:
                assert log.flush()
            log.feed(log.random.randrange(1, 9))
            if log.random.random() < 0.3:
                log.fail(log.random.randrange(6))
            log.crash(log.random.randrange(25), power_loss=log.random.random() < 0.8)
            log.check_queries()
        log.feed(30)
        assert log.flush()
        log.check_files()
        log.check_queries()
