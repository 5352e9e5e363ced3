"""What is said of popped messages by handle, in Java's bytes."""

from base64 import b64decode

import orjson
from golden_store import vectors

from message.pop_handle import PopHandle
from mqclient.popped_messages import ack_request
from remoting.codes import RequestCode


def test_messages_of_one_pop_are_acknowledged_in_the_bytes_of_java() -> None:
    (vector,) = vectors("pop_handles", "batchAckBody")
    handles = [
        PopHandle(100, 1_700_000_000_000, 60_000, 3, "0", "broker-a", 2, 100 + bit) for bit in vector["bits"]
    ]
    code, fields, body = ack_request("g", "T", handles)
    assert (code, fields) == (RequestCode.BATCH_ACK_MESSAGE, {})
    assert orjson.loads(body) == orjson.loads(vector["output"])


def test_one_message_of_a_retry_topic_is_acknowledged_there() -> None:
    handle = PopHandle(100, 5, 60_000, 3, "1", "broker-a", 2, 103)
    code, fields, body = ack_request("g", "T", [handle])
    assert (code, body) == (RequestCode.ACK_MESSAGE, b"")
    assert fields == {
        "consumerGroup": "g", "topic": "%RETRY%g_T", "queueId": "2", "offset": "103", "bname": "broker-a",
        "extraInfo": "100 5 60000 3 1 broker-a 2 103",
    }  # fmt: skip


def test_messages_of_several_pops_are_acknowledged_together() -> None:
    first = PopHandle(100, 5, 60_000, 0, "0", "broker-a", 2, 103)
    second = first._replace(start=7, retry="2", queue_offset=7)
    _, _, body = ack_request("g", "T", [first, second, first._replace(queue_offset=100)])
    acks = orjson.loads(body)["acks"]
    assert [(ack["so"], ack["r"], b64decode(ack["b"])) for ack in acks] == [
        (100, "0", b"\x09"),
        (7, "2", b"\x01"),
    ]
