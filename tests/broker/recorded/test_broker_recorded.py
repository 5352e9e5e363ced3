"""What Java's clients asked Java's broker, asked of ours: the same answers, leaving out times and places.

The recorded requests of the scenarios below are given to one broker in their order, each on a channel of its own
recorded connection, with the recorded time passing in between. Compared are code, remark, ext fields and body.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from one_broker import OneBroker, RecordingChannel

from message.decoder import decode_messages
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import loads_fastjson
from remoting.frame.command import RemotingCommand
from remoting.frame.connection import RemotingConnection

WIRE = Path(__file__).parents[2] / "golden" / "wire"
SCENARIOS = (
    "topic_create",
    "send_sync",
    "send_v1",
    "send_errors",
    "send_compressed",
    "send_batch",
    "send_oneway_async",
    "pull",
    "offsets",
    "query",
    "heartbeat",
    "push_consume",
)
CODES = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.PULL_MESSAGE,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
        RequestCode.GET_MAX_OFFSET,
        RequestCode.GET_MIN_OFFSET,
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        88888,
    }
)


CLIENT_ADDRESS = re.compile(r"/?127\.0\.0\.1:\d+")


def recorded() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name in SCENARIOS:
        with gzip.open(WIRE / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
            rows += [row for row in map(json.loads, lines) if "broker-a" in (row["from"], row["to"])]
    rows.sort(key=lambda row: int(row["seq"]))
    # From an offset reset by a tool on the two go different ways: here held pulls hear of it at once.
    reset = next(
        index
        for index, row in enumerate(rows)
        if row.get("code") == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    )
    return rows[:reset]


def values_of(answer: RemotingCommand, code: int, left_out: set[str]) -> tuple[object, ...]:
    """What must be the same. Offsets in the log, times and ids are the run's own."""
    fields = {name: value for name, value in answer.ext_fields.items() if name not in left_out}
    body: object = bytes(answer.body)
    if code == RequestCode.PULL_MESSAGE and answer.body:
        body = [
            (m.topic, m.queue_id, m.queue_offset, m.body, m.flag, m.sys_flag)
            for m in decode_messages(answer.body)
        ]
    elif answer.body:
        body = loads_fastjson(bytes(answer.body))
        if isinstance(body, dict):
            # Sets, written in the order of a hash table.
            body = {name: sorted(map(str, value)) for name, value in body.items()}
    return answer.code, fields, body


def key_of(row: dict[str, Any]) -> str:
    fields = row["header"].get("extFields", {})
    return fields.get("i", fields.get("properties", "")) or ""


# Where Java fails with an exception of its own, ours says what is wrong: code 13 for an empty body, and for fields that
# are missing a remark that names them, with the ext fields of any send.
JAVA_FAILS = {
    370: ResponseCode.MESSAGE_ILLEGAL,
    372: ResponseCode.MESSAGE_ILLEGAL,
    394: ResponseCode.SYSTEM_ERROR,
}


def may_be_held_to_the_end(row: dict[str, Any], recorded_code: int | None) -> bool:
    """A pull that waited in Java too, until its 5 s check or its connection's end: ours may end the other way."""
    return row["code"] == RequestCode.PULL_MESSAGE and recorded_code != ResponseCode.SUCCESS


@pytest.mark.slow
def test_recorded_clients_get_the_recorded_answers(tmp_path: Path) -> None:
    rows = recorded()
    broker = OneBroker(tmp_path, now_ms=int(rows[0]["t"]) - 1000)
    channels: dict[int, RecordingChannel] = {}
    asked: list[dict[str, Any]] = []
    for row in rows:
        while broker.now_ms < int(row["t"]):
            broker.tick(min(500, int(row["t"]) - broker.now_ms))
        channel = channels.setdefault(row["conn"], RecordingChannel(row["conn"]))
        if row["kind"] == "close":
            broker.controller.pipeline.channel_closed(channel)
        if row["kind"] not in ("request", "oneway") or row["to"] != "broker-a" or row["code"] not in CODES:
            continue
        broker.receive(RemotingConnection().receive_data(base64.b64decode(row["frame_b64"])), channel)
        broker.settle()
        if row["kind"] == "request":
            asked.append(row)
    broker.run_for(20_000)
    broker.close()
    recorded_answers = {
        row["reply_to"]: base64.b64decode(row["frame_b64"]) for row in rows if row["kind"] == "response"
    }
    recorded_codes = {row["reply_to"]: row["code"] for row in rows if row["kind"] == "response"}
    compared: Counter[int] = Counter()
    for row in asked:
        ours = channels[row["conn"]].response_to(row["opaque"])
        if ours is None and may_be_held_to_the_end(row, recorded_codes.get(row["seq"])):
            continue
        assert ours is not None, f"frame {row['seq']} has no answer"
        if row["seq"] in JAVA_FAILS:
            assert ours.code == JAVA_FAILS[row["seq"]]
        elif row["seq"] in recorded_answers:
            (theirs,) = RemotingConnection().receive_data(recorded_answers[row["seq"]])
            left_out = {"msgId"} if "UNIQ_KEY" in key_of(row) else {"msgId", "transactionId"}
            expected = values_of(theirs, row["code"], left_out)
            assert values_of(ours, row["code"], left_out) == expected, f"frame {row['seq']}"
            remark = CLIENT_ADDRESS.sub("", theirs.remark or "")
            if not remark.startswith("java.") and remark != "not set any response code":
                assert remark in (CLIENT_ADDRESS.sub("", ours.remark or ""), "")
            compared[row["code"]] += 1
    assert set(compared) == CODES
    assert compared.total() > 150
