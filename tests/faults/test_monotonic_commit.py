"""What a group has committed stays committed, as far as anybody can know."""

import msgspec
from made_history import MS
from told import at

from faults.history import AnyRecord, Commit, CommitBegun, Committed
from faults.judge import judge


def kinds(records: list[AnyRecord]) -> list[str]:
    return [violation.checker for violation in judge(lambda: records).violations]


def test_a_commit_under_way_explains_a_lower_answer() -> None:
    where, other = at(), at("d")
    records: list[AnyRecord] = [
        CommitBegun(at_ns=1, offset=10, **where),
        CommitBegun(at_ns=2, offset=5, **other),
        Commit(at_ns=3, begun_ns=1, offset=10, outcome="ok", **where),
        Committed(at_ns=5, begun_ns=4, offset=5, **where),
    ]
    assert kinds(records) == []
    records[-1] = Committed(at_ns=5, begun_ns=4, offset=4, **where)
    assert kinds(records) == ["monotonic_commit"]
    # Of a one-way commit nobody knows when it comes into force.
    records = [
        CommitBegun(at_ns=1, offset=5, **other),
        Commit(at_ns=2, begun_ns=1, offset=5, outcome="unknown", **other),
        CommitBegun(at_ns=3, offset=10, **where),
        Commit(at_ns=4, begun_ns=3, offset=10, outcome="ok", **where),
        Committed(at_ns=6, begun_ns=5, offset=5, **where),
    ]
    assert kinds(records) == []


def test_what_the_broker_has_said_is_committed_stays_so_where_nobody_is_told_of_the_end_of_a_commit() -> None:
    where = at()
    records: list[AnyRecord] = [
        CommitBegun(at_ns=1 * MS, offset=500, **where),
        Commit(at_ns=2 * MS, begun_ns=1 * MS, offset=500, outcome="unknown", **where),
        Committed(at_ns=9 * MS, begun_ns=8 * MS, offset=500, **where),
    ]
    back = Committed(at_ns=20 * MS, begun_ns=19 * MS, offset=3, **where)
    assert kinds([*records, back]) == ["monotonic_commit"]
    assert kinds([*records, msgspec.structs.replace(back, offset=600)]) == []
    # An answer may be older than a lower commit that came into force while it was under way.
    other = at("d")
    lower: list[AnyRecord] = [
        CommitBegun(at_ns=3 * MS, offset=3, **other),
        Commit(at_ns=4 * MS, begun_ns=3 * MS, offset=3, outcome="ok", **other),
    ]
    assert kinds([*records[:2], *lower, msgspec.structs.replace(records[2], begun_ns=2 * MS), back]) == []
