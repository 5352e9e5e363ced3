"""Inner batches as consumers see them."""

from message.batch import BatchMessage, encode_batch
from message.decoder import MessageExt
from message.inner_batch import unwrapped


def record(body: bytes, sys_flag: int, queue_offset: int = 7) -> MessageExt:
    return MessageExt(
        topic="B",
        queue_id=3,
        queue_offset=queue_offset,
        phy_offset=4096,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp=1,
        born_host="127.0.0.1:1",
        store_timestamp=2,
        store_host="127.0.0.1:2",
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        body_crc=0,
        properties={"UNIQ_KEY": "whole"},
        store_size=200,
    )


BODY = encode_batch(
    [
        BatchMessage(5, b"one", b"UNIQ_KEY\x01K1\x02TAGS\x01A\x02"),
        BatchMessage(6, b"two", b"UNIQ_KEY\x01K2\x02"),
    ]
)


def test_messages_get_the_offsets_from_that_of_the_batch_on_and_properties_of_their_own() -> None:
    alone = record(b"alone", 0, 9)
    first, second, third = unwrapped([record(BODY, 0xC0), alone])
    assert (first.queue_offset, first.body, first.flag, first.tags) == (7, b"one", 5, "A")
    assert (second.queue_offset, second.body, second.flag) == (8, b"two", 6)
    assert (second.properties, second.sys_flag, second.phy_offset) == ({"UNIQ_KEY": "K2"}, 0, 4096)
    assert third is alone


def test_messages_before_the_offset_that_was_asked_for_are_left_out() -> None:
    assert [message.body for message in unwrapped([record(BODY, 0xC0)], 8)] == [b"two"]


def test_a_batch_that_its_sender_wrapped_is_unwrapped_by_its_consumer() -> None:
    assert unwrapped([record(BODY, 0x80)]) == [record(BODY, 0x80)]
