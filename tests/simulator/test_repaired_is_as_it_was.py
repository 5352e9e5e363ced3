"""What the check of repaired bytes lets pass, and what not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from dledger.entry import GENESIS_CHAIN, Index, Pos, Term, parse_header, seal_entries
from dledger.errors import FaultyEntryError
from dledger.log.faulty_ranges import FaultyRange
from simulator.harness.oracle import Oracle
from simulator.invariants.repaired_is_as_it_was import RepairedIsAsItWas
from tests.simulator.member_view import FAULTY, View


def _entries(bodies: Sequence[bytes] = (b"one", b"two", b"three")) -> dict[int, bytes]:
    positions = [0, 51, 102]
    buffers, _ = seal_entries(bodies, positions, 0, 1, 0, GENESIS_CHAIN)
    return {index: buffers[2 * index] + buffers[2 * index + 1] for index in range(3)}


def _oracle_of(entries: dict[int, bytes]) -> Oracle:
    oracle = Oracle()
    oracle.chains = [parse_header(entry).chain_crc for entry in entries.values()]
    return oracle


WHOLE = FaultyRange(Index(0), Index(1), Pos(0), Pos(102))  # with entry 2 behind it


def _log_of(entries: dict[int, bytes]) -> list[tuple[int, int]]:
    return [(header.term, header.chain_crc) for header in map(parse_header, entries.values())]


def test_repaired_is_as_it_was_fires_on_other_bytes_and_on_none():
    entries = _entries()
    for index, bad in ((1, entries[1][:-1] + b"?"), (2, b""), (2, entries[1])):
        for committed_count in range(index + 1, len(entries) + 1):
            invariant = RepairedIsAsItWas()
            oracle = _oracle_of(dict(list(entries.items())[:committed_count]))
            log = _log_of(entries)
            assert invariant.check(View(faulty_ranges=(FAULTY,), log=log), oracle) is None
            fault = invariant.check(View(stored=entries | {index: bad}, log=log), oracle)
            assert f"calls entry {index} repaired" in str(fault)


@pytest.mark.parametrize("committed_count", [2, 3])
def test_repaired_is_as_it_was_is_silent_where_what_lies_behind_follows_from_another_history(committed_count):
    """The last entry of the range is of that one, too, and the group has committed others up to there."""
    entries, others = _entries([b"one", b"2", b"3"]), _entries()
    invariant = RepairedIsAsItWas()
    oracle = _oracle_of(dict(list(others.items())[:committed_count]))
    log = _log_of(entries)
    assert invariant.check(View(faulty_ranges=(WHOLE,), log=log), oracle) is None
    assert invariant.check(View(stored=entries, log=log), oracle) is None
    assert invariant.check(View(faulty_ranges=(FAULTY,), log=log), oracle) is None
    assert invariant.check(View(stored=entries, log=log), oracle) is None


@pytest.mark.parametrize("committed_count", [1, 2, 3])
@pytest.mark.parametrize("spoiled", [0, 1])
def test_repaired_is_as_it_was_fires_where_what_lies_behind_is_of_another_history_and_the_range_is_of_none(
    spoiled, committed_count
):
    entries, others = _entries([b"1", b"2", b"3"]), _entries()
    oracle = _oracle_of(dict(list(others.items())[:committed_count]))
    log = _log_of(entries)
    for bad in (entries[spoiled][:-1] + b"?", others[1], bytes(len(entries[spoiled])), b""):
        invariant = RepairedIsAsItWas()
        assert invariant.check(View(faulty_ranges=(WHOLE,), log=log), oracle) is None
        fault = invariant.check(View(stored=entries | {spoiled: bad}, log=log), oracle)
        assert "calls entry" in str(fault)


@pytest.mark.parametrize("is_at_end", [False, True])
@pytest.mark.parametrize("leads_on", [False, True])
def test_repaired_is_as_it_was_fires_on_another_history_that_leads_nowhere(is_at_end, leads_on):
    """It leads to what lies behind the range, and is remembered of that, or to the end that is remembered."""
    entries, others = _entries([b"1", b"2", b"3"]), _entries()
    stored = entries if leads_on else entries | {2: others[2]}
    log = _log_of(entries if leads_on else others)[: 2 if is_at_end else 3]
    invariant = RepairedIsAsItWas()
    assert invariant.check(View(faulty_ranges=(WHOLE,), log=log), _oracle_of(others)) is None
    fault = invariant.check(View(stored=stored, log=log), _oracle_of(others))
    assert (fault is None) == leads_on


def test_repaired_is_as_it_was_fires_where_what_lies_behind_is_not_as_it_is_remembered():
    """Whoever writes into a range may have written over what is behind as well."""
    entries, others = _entries([b"1", b"2", b"3"]), _entries()
    invariant = RepairedIsAsItWas()
    log = [*_log_of(others), (1, 7)]
    assert invariant.check(View(faulty_ranges=(WHOLE,), log=log), _oracle_of(others)) is None
    assert "nothing behind" in str(invariant.check(View(stored=entries, log=log), _oracle_of(others)))


def test_repaired_is_as_it_was_fires_on_another_history_that_does_not_follow_from_what_is_in_front():
    entries, others = _entries([b"1", b"2", b"3"]), _entries()
    faulty = FaultyRange(Index(1), Index(1), Pos(51), Pos(102))
    log = [_log_of(others)[0], *_log_of(entries)[1:]]
    assert log[0] != _log_of(entries)[0]
    for begin_index in (0, 1):
        invariant = RepairedIsAsItWas()
        view = View(log=log, ledger_begin_index=begin_index)
        assert invariant.check(replace(view, faulty_ranges=(faulty,)), _oracle_of(others)) is None
        assert "calls entry 1 repaired" in str(
            invariant.check(replace(view, stored=entries), _oracle_of(others))
        )


@pytest.mark.parametrize("still_damaged", [0, 1])
@pytest.mark.parametrize("leads_on", [False, True])
def test_repaired_is_as_it_was_judges_where_another_history_leads_once_the_whole_range_is_repaired(
    still_damaged, leads_on
):
    entries, others = _entries([b"1", b"2", b"3"]), _entries()
    stored = entries if leads_on else entries | {2: others[2]}
    in_part = {index: entry for index, entry in stored.items() if index != still_damaged}
    still = FaultyRange(Index(still_damaged), Index(still_damaged), Pos(0), Pos(51))
    invariant, oracle = RepairedIsAsItWas(), _oracle_of(others)
    view = View(log=_log_of(entries))
    assert invariant.check(replace(view, now_us=10, faulty_ranges=(WHOLE,)), oracle) is None
    assert invariant.check(replace(view, now_us=20, faulty_ranges=(still,), stored=in_part), oracle) is None
    # Damage done in between is none of the repair's.
    fault = invariant.check(replace(view, now_us=30, stored=stored, damaged_us=21), oracle)
    assert (fault is None) == leads_on


def test_repaired_is_as_it_was_judges_a_range_at_once_if_only_what_lies_behind_is_damaged():
    entries, others = _entries([b"1", b"2", b"3"]), _entries()
    first = FaultyRange(Index(0), Index(0), Pos(0), Pos(51))
    behind = FaultyRange(Index(1), Index(1), Pos(51), Pos(102))
    for stored, is_allowed in ((entries, True), (entries | {1: others[1]}, False)):
        invariant, view = RepairedIsAsItWas(), View(log=_log_of(entries))
        assert invariant.check(replace(view, faulty_ranges=(first,)), _oracle_of(others)) is None
        fault = invariant.check(replace(view, faulty_ranges=(behind,), stored=stored), _oracle_of(others))
        assert (fault is None) == is_allowed


@pytest.mark.parametrize(
    "bad", [lambda entry: entry[:-1] + b"?", lambda entry: entry + b"?", lambda _: b"x" * 60]
)
def test_repaired_is_as_it_was_fires_on_what_nobody_has_committed_and_on_what_stands_alone(bad):
    """In front of the latter is damage, or what nobody knows any more."""

    @dataclass
    class Forgotten(View):
        def term_at(self, index):
            return Term(-1) if index == 0 else super().term_at(index)

        def chain_at(self, index):
            return GENESIS_CHAIN if index == 0 else super().chain_at(index)

    entries = _entries()
    log, spoiled = _log_of(entries), entries | {1: bad(entries[1])}
    first, second = (
        FaultyRange(Index(0), Index(0), Pos(0), Pos(51)),
        FaultyRange(Index(1), Index(1), Pos(51), Pos(102)),
    )
    for view, faulty, still, committed_count in (
        (View(log=log), WHOLE, (), 1),
        (View(log=log), WHOLE, (first,), 3),
        (View(log=log), WHOLE, (first,), 0),
        (Forgotten(log=log, ledger_begin_index=1, has_forgotten_begin=True), second, (), 3),
    ):
        oracle = _oracle_of(dict(list(entries.items())[:committed_count]))
        for stored in (entries, spoiled):
            invariant = RepairedIsAsItWas()
            assert invariant.check(replace(view, faulty_ranges=(faulty,)), oracle) is None
            fault = invariant.check(replace(view, faulty_ranges=still, stored=stored), oracle)
            assert ("calls entry 1 repaired" in str(fault)) == (stored is spoiled)


def test_repaired_is_as_it_was_fires_on_a_header_that_is_not_the_group_s_and_says_that_it_is():
    """Nothing else tells of a spoiled kind where what is in front is damaged."""
    entries = _entries()
    still = FaultyRange(Index(0), Index(0), Pos(0), Pos(51))
    spoiled = entries | {1: entries[1][:35] + b"\x01" + entries[1][36:]}
    invariant, log = RepairedIsAsItWas(), _log_of(entries)
    assert invariant.check(View(log=log, faulty_ranges=(WHOLE,)), _oracle_of(entries)) is None
    fault = invariant.check(View(log=log, faulty_ranges=(still,), stored=spoiled), _oracle_of(entries))
    assert "calls entry 1 repaired" in str(fault)


def test_repaired_is_as_it_was_is_silent_on_what_the_log_has_no_more():
    entries = _entries()
    log = _log_of(entries)
    for view in (
        View(log=log[:1], stored={0: entries[0]}),
        View(log=log, ledger_begin_index=1, stored={1: entries[1]}),
    ):
        invariant = RepairedIsAsItWas()
        assert invariant.check(replace(view, faulty_ranges=(WHOLE,)), _oracle_of(entries)) is None
        assert invariant.check(view, _oracle_of(entries)) is None


def test_repaired_is_as_it_was_fires_on_a_spoiled_piece_while_others_are_still_damaged():
    entries = _entries()
    still = FaultyRange(Index(1), Index(1), Pos(51), Pos(102))
    invariant, log = RepairedIsAsItWas(), _log_of(entries)
    assert invariant.check(View(faulty_ranges=(WHOLE,), log=log), _oracle_of(entries)) is None
    spoiled = entries | {0: entries[0][:-1] + b"?"}
    fault = invariant.check(View(faulty_ranges=(still,), stored=spoiled, log=log), _oracle_of(entries))
    assert "calls entry 0 repaired" in str(fault)


def test_repaired_is_as_it_was_judges_again_what_it_came_upon_damage_in():
    @dataclass
    class DamagedInFront(View):
        def chain_at(self, index):
            raise FaultyEntryError("entry 0 is damaged")

    entries = _entries()
    spoiled = entries | {1: entries[1][:-1] + b"?"}
    invariant, log = RepairedIsAsItWas(), _log_of(entries)
    assert invariant.check(View(faulty_ranges=(FAULTY,), log=log), _oracle_of(entries)) is None
    with pytest.raises(FaultyEntryError):
        invariant.check(DamagedInFront(stored=spoiled, log=log), _oracle_of(entries))
    assert "calls entry 1 repaired" in str(
        invariant.check(View(stored=spoiled, log=log), _oracle_of(entries))
    )


def test_repaired_is_as_it_was_is_silent_on_the_committed_bytes_and_on_what_is_still_called_damaged():
    entries = _entries()
    invariant = RepairedIsAsItWas()
    assert invariant.check(View(faulty_ranges=(FAULTY,)), _oracle_of(entries)) is None
    rest = FaultyRange(Index(2), Index(2), Pos(102), Pos(155))
    repaired = {index: entries[index] for index in (0, 1)}
    assert invariant.check(View(faulty_ranges=(rest,), stored=repaired), _oracle_of(entries)) is None
    assert invariant.check(View(stored=entries), _oracle_of(entries)) is None


def test_repaired_is_as_it_was_is_silent_on_damage_done_since_the_range_is_called_damaged():
    entries = _entries()
    view = View(log=_log_of(entries))

    def fault(damaged_us: int) -> str | None:
        invariant = RepairedIsAsItWas()
        assert invariant.check(replace(view, now_us=10, faulty_ranges=(FAULTY,)), _oracle_of(entries)) is None
        assert invariant.check(replace(view, now_us=20, faulty_ranges=(FAULTY,)), _oracle_of(entries)) is None
        return invariant.check(
            replace(view, now_us=30, stored=entries, damaged_us=damaged_us), _oracle_of(entries)
        )

    assert fault(damaged_us=11) is None
    assert "calls entry 1 repaired" in str(fault(damaged_us=10))
