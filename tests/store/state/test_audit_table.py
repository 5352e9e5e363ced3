"""The table of noted requests: the newest stay, with their numbers."""

from __future__ import annotations

from store.state.state_tables import StateTables
from store.state.tables.audit_table import ROWS_MAX, AuditRow, AuditTable, NoteRequest


def note(number: int, username: str = "root") -> NoteRequest:
    return NoteRequest(username, "10.0.0.1", 17, f"topic={number}")


def test_the_newest_requests_stay_and_keep_their_numbers() -> None:
    table = AuditTable()
    for number in range(1, ROWS_MAX + 11):
        table.apply([note(number)], 1000 + number)
    rows = table.rows()
    assert (min(rows), max(rows), len(rows)) == (11, ROWS_MAX + 10, ROWS_MAX)
    assert rows[11] == AuditRow(1011, note(11))


def test_a_flood_of_one_user_drives_out_that_users_notes_alone() -> None:
    table = AuditTable()
    table.apply([note(1), note(2)], 1)
    table.apply([note(number, "u") for number in range(2 * ROWS_MAX)], 2)
    kept = [note(number, "u") for number in range(ROWS_MAX + 2, 2 * ROWS_MAX)]
    assert [row.note for row in table.audited] == [note(1), note(2), *kept]


def test_of_users_with_equally_many_notes_the_oldest_goes() -> None:
    table = AuditTable()
    half = ROWS_MAX // 2
    table.apply([note(number, name) for number in range(half) for name in ("u", "root")], 1)
    table.apply([note(0, "other")], 2)
    assert [row.note for row in table.audited[:2]] == [note(0), note(1, "u")]
    table.apply([note(1, "other")], 3)
    assert [row.note for row in table.audited[:2]] == [note(1, "u"), note(1)]


def test_a_full_state_has_them_and_it_stays_bounded() -> None:
    tables, others = StateTables(), StateTables()
    tables.apply([note(number) for number in range(ROWS_MAX + 1)], 5)
    others.unpack(tables.pack())
    assert others.audit_table.rows() == tables.audit_table.rows()
    others.apply([note(7)], 6)
    assert len(others.audit_table.audited) == ROWS_MAX
