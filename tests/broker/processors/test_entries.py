"""Entries of the log for readers that are no members: whole, sound, in order, up to the commit."""

from pathlib import Path

import pytest
from one_broker import OneBroker, send_fields
from test_send_message import SEND, create

from dledger.entry import (
    ENTRY_HEADER_SIZE,
    GENESIS_CHAIN,
    EntryKind,
    VerifiedRange,
    parse_header,
    verify_entries,
)
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin_headers import GetEntriesResponseHeader
from remoting.headers.headers import decode


def get(broker: OneBroker, begin: int, max_bytes: int = 1 << 20) -> tuple[GetEntriesResponseHeader, bytes]:
    fields = {"beginIndex": str(begin), "maxBytes": str(max_bytes)}
    answer = broker.ask(RequestCode.GET_ENTRIES, fields)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return decode(GetEntriesResponseHeader, answer.ext_fields), bytes(answer.body)


def verified(told: GetEntriesResponseHeader, begin: int, entries: bytes) -> VerifiedRange:
    return verify_entries(
        entries, first_index=begin, first_pos=told.first_pos, prev_chain=told.previous_chain
    )


@pytest.fixture
def broker(tmp_path: Path) -> OneBroker:
    made = OneBroker(tmp_path)
    create(made, "T")
    for number in range(20):
        assert made.ask(SEND, send_fields("T"), b"body %d" % number).code == ResponseCode.SUCCESS
    made.run_for(1000)
    return made


def test_reader_gets_the_whole_log_as_a_chain(broker: OneBroker) -> None:
    begin, kinds, bodies, chain = 0, set(), b"", GENESIS_CHAIN
    while True:
        told, entries = get(broker, begin, 700)
        if not entries:
            break
        found = verified(told, begin, entries)
        assert (told.previous_chain, found.last_index, found.size) == (chain, told.last_index, len(entries))
        kinds.update(found.kinds)
        bodies += entries
        begin, chain = told.last_index + 1, found.chain
    assert begin == told.committed_index + 1 == broker.store.replica.member.committed_index + 1
    assert {EntryKind.MESSAGE, EntryKind.NO_OP, EntryKind.STATE} <= kinds
    assert all(b"body %d" % number in bodies for number in range(20))
    assert told.group_uuid == (broker.store.replica.group_uuid or b"").hex() != ""


def test_one_entry_comes_whatever_its_size(broker: OneBroker) -> None:
    told, entries = get(broker, 5, 0)
    assert (told.last_index, parse_header(entries).index, parse_header(entries).size) == (5, 5, len(entries))


def test_head_of_an_entry_comes_alone(broker: OneBroker) -> None:
    told, entries = get(broker, 5, 0)
    answer = broker.ask(RequestCode.GET_ENTRY_HEAD, {"index": "5"})
    assert decode(GetEntriesResponseHeader, answer.ext_fields) == told
    assert bytes(answer.body) == entries[:ENTRY_HEADER_SIZE]
    assert parse_header(bytes(answer.body)).index == 5


@pytest.mark.parametrize("begin", [10_000, 1 << 62])
def test_what_is_not_committed_is_not_there(broker: OneBroker, begin: int) -> None:
    told, entries = get(broker, begin)
    assert (told.last_index, entries) == (begin - 1, b"")
    assert (told.ledger_begin_index, told.committed_index) == (0, broker.store.replica.member.committed_index)


def test_broker_without_a_group_has_no_entries(tmp_path: Path) -> None:
    answer = OneBroker(tmp_path, is_plain=True).ask(
        RequestCode.GET_ENTRIES, {"beginIndex": "0", "maxBytes": "1"}
    )
    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    assert answer.remark == "this broker is no member of a group: its log has records and no entries"
