"""The recorded stores of single Java brokers: CommitLog records, blanks, and the record that was torn by
hand.
"""

from hashlib import sha1

import pytest
from golden_message import said, seen
from golden_store import SINGLE_STORES, below, expected, store_files

from message.decoder import MessageExt, decode_message, decode_messages, raw_properties, walk_records
from message.encoder import encode_again
from message.errors import MessageDecodeError
from message.properties import encode_properties
from message.record_layout import BLANK_HEADER, BLANK_MAGIC

TORN_AT = 1307907


def records(store: str) -> list[tuple[MessageExt, bytes]]:
    """Messages up to the end that recovery finds, with their bytes."""
    end = expected(store)["meta"][0]["commitlog_max_offset"]
    found: list[tuple[MessageExt, bytes]] = []
    for start, content in below(store_files(store), "commitlog"):
        for offset, size in walk_records(content):
            if start + offset >= end:
                break
            found.append((decode_message(content, offset), content[offset : offset + size]))
    return found


@pytest.mark.parametrize("store", SINGLE_STORES)
def test_every_record_is_what_rocketmq_says_it_is(store: str) -> None:
    lines = expected(store)["msg"]
    read = records(store)
    assert len(read) == len(lines) == expected(store)["totals"][0]["messages"]
    for (message, record), line in zip(read, lines, strict=True):
        assert sha1(record).hexdigest() == line["record_sha1"]
        like = seen(message)
        assert like == said(line, like)


@pytest.mark.parametrize("store", SINGLE_STORES)
def test_every_record_is_written_again_to_the_same_bytes(store: str) -> None:
    for message, record in records(store):
        properties = raw_properties(record)
        assert encode_again(message, message.topic.encode(), message.queue_id, properties) == record
        # 4.9.5 left the last separator out, and wrote some names twice.
        if store != "single-4.9.5-clean":
            assert encode_properties(message.properties) == properties


@pytest.mark.parametrize("store", SINGLE_STORES)
def test_files_end_in_the_blanks_that_rocketmq_found(store: str) -> None:
    blanks = []
    for start, content in below(store_files(store), "commitlog"):
        end = sum(size for _, size in walk_records(content))
        space_left, magic = BLANK_HEADER.unpack_from(content, end)
        if magic == BLANK_MAGIC:
            assert end + space_left == len(content)
            blanks.append((start + end, space_left))
    assert blanks == [(line["commitLogOffset"], line["length"]) for line in expected(store)["blank"]]


def test_records_one_behind_the_other_decode_as_a_pull_response() -> None:
    read = records("single-5.5.0-clean")[:50]
    assert decode_messages(b"".join(record for _, record in read)) == [message for message, _ in read]


def test_the_torn_record_is_refused() -> None:
    start, content = below(store_files("single-5.5.0-torn"), "commitlog")[1]
    offset = TORN_AT - start
    assert offset in [at for at, _ in walk_records(content)], "its size and magic survived"
    with pytest.raises(MessageDecodeError):
        decode_message(content, offset)
    whole = below(store_files("single-5.5.0-killed"), "commitlog")[1][1]
    assert decode_message(whole, offset).phy_offset == TORN_AT
