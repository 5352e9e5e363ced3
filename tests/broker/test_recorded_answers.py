"""What Java's mqadmin asked Java's broker, asked of ours: answers of the same code and the same shape.

Recorded clients come first, in their order, so that groups, offsets and connections are there when mqadmin asks for
them; what they answered to the broker's own requests is given as answers of theirs. Values are the run's own, so shapes
are compared: which names an object has, and of what kind the values are.
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

from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand, response
from remoting.connection import RemotingConnection
from remoting.fastjson import loads_fastjson

WIRE = Path(__file__).parent.parent / "golden" / "wire"
Row = dict[str, Any]

# Answered otherwise, each for a reason of its own.
NOT_SUPPORTED = frozenset(
    {
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.SET_MESSAGE_REQUEST_MODE,  # of pop consumers
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.QUERY_CORRECTION_OFFSET,
        RequestCode.GET_ALL_CONSUMER_OFFSET,  # a table that a slave copies
    }
)
ACCESS_CONTROL = range(3001, 3011)
# What only the recorded broker had: topics and groups of scenarios that are not given here, or messages more.
MISSING = re.compile(r"not exist|No topic in this broker|can not find message|not in consume queue range")
# Java takes any setting that it knows; these have no effect here.
OTHER_SETTINGS = frozenset({RequestCode.UPDATE_BROKER_CONFIG})
CLIENTS = frozenset(
    {
        "background_live_client",
        "broker_admin_raw",
        "offsets",
        "push_consume",
        "send_sync",
        "topic_create",
    }
)
# Keys of these maps are data.
MAPS = frozenset(
    {"subscriptionTable", "data", "topicConfigTable", "subscriptionGroupTable", "offsetTable", "table"}
)
# Only one of the two sides has them: what we do not know, and what is for people.
OPTIONAL = frozenset({"totalInflightDiff", "bitMap", "msg", "groupTopicMap"})


def rows_of_broker() -> list[Row]:
    rows: list[Row] = []
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        if not path.name.startswith("mqadmin_") and path.name.partition(".")[0] not in CLIENTS:
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if "broker-a" in (row["from"], row["to"]):
                    row["file"] = path.name
                    rows.append(row)
    return sorted(rows, key=lambda row: int(row["seq"]))


def is_of_tools(row: Row) -> bool:
    return row["file"].startswith("mqadmin_") or row["file"] == "broker_admin_raw.jsonl.gz"


def shape(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        if name in MAPS or any(isinstance(key, tuple | int) for key in value):
            return {"*": shape(next(iter(value.values())))} if value else {}
        return {key: shape(item, str(key)) for key, item in value.items() if key not in OPTIONAL}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return (
        "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__
    )


def is_alike(ours: object, theirs: object) -> bool:
    """An empty list or map is like any other: which groups have something is the run's own."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if not ours or not theirs:
            return True
        return ours.keys() == theirs.keys() and all(is_alike(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return not ours or not theirs or is_alike(ours[0], theirs[0])
    return ours == theirs


def body_shape(answer: RemotingCommand, code: int) -> object:
    body = bytes(answer.body)
    if not body:
        return None
    if body[:1] not in (b"{", b"["):
        return "bytes"
    value = loads_fastjson(body)
    if code == RequestCode.GET_BROKER_CONSUME_STATS and isinstance(value, dict):
        # One map of one group each.
        value["consumeStatsList"] = [
            stats for item in value["consumeStatsList"] for stats in item.values() if stats
        ]
    return shape(value)


def by_sql(row: Row) -> bool:
    """Filters by expression are not supported."""
    return row["code"] == RequestCode.CHECK_CLIENT_CONFIG and b"SQL92" in base64.b64decode(row["frame_b64"])


class Replay:
    def __init__(self, broker: OneBroker) -> None:
        self._broker = broker
        self.channels: dict[int, RecordingChannel] = {}

    def give(self, row: Row, client_answers: dict[tuple[int, int], Row]) -> None:
        broker = self._broker
        while broker.now_ms < int(row["t"]):
            broker.tick(min(500, int(row["t"]) - broker.now_ms))
        conn = row["conn"]
        channel = self.channels.setdefault(conn, RecordingChannel(conn))
        if row["kind"] == "close":
            broker.controller.request_handler.channel_closed(channel)
        if row["to"] != "broker-a" or row["kind"] not in ("request", "oneway"):
            return
        broker.receive(RemotingConnection().receive_data(base64.b64decode(row["frame_b64"])), channel)
        broker.settle()
        self._answer_for_clients(client_answers)

    def _answer_for_clients(self, client_answers: dict[tuple[int, int], Row]) -> None:
        """With what the recorded client of that connection once answered to that code."""
        for conn, channel in self.channels.items():
            for asked in [c for c in channel.received if not c.is_response and not c.is_oneway]:
                recorded = client_answers.get((conn, asked.code))
                if recorded is not None:
                    (said,) = RemotingConnection().receive_data(base64.b64decode(recorded["frame_b64"]))
                    answer = response(asked, said.code, said.remark, body=bytes(said.body))
                    self._broker.receive([answer], channel)
            channel.received = [c for c in channel.received if c.is_response]


@pytest.mark.slow
def test_recorded_tools_get_answers_of_the_recorded_shape(tmp_path: Path) -> None:
    rows = rows_of_broker()
    broker = OneBroker(tmp_path, "flushDiskType=ASYNC_FLUSH\n", now_ms=int(rows[0]["t"]) - 1000)
    client_answers = {
        (row["conn"], row["reply_to_code"]): row
        for row in rows
        if row["kind"] == "response" and row["to"] != "mqadmin-5.5.0" and row["from"] != "broker-a"
    }
    recorded = {
        row["reply_to"]: row for row in rows if row["kind"] == "response" and row["from"] == "broker-a"
    }
    replay = Replay(broker)
    for row in rows:
        replay.give(row, client_answers)
    broker.run_for(20_000)
    broker.close()
    compared: Counter[int] = Counter()
    differing: list[str] = []
    for row in rows:
        if row["kind"] != "request" or not is_of_tools(row) or row["seq"] not in recorded:
            continue
        code = row["code"]
        ours = replay.channels[row["conn"]].response_to(row["opaque"])
        where = f"{row['file']} {row['seq']} {row['code_name']}"
        assert ours is not None, where
        if code in NOT_SUPPORTED or code in ACCESS_CONTROL:
            assert ours.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, where
            continue
        if code in OTHER_SETTINGS:
            assert ours.code in (ResponseCode.INVALID_PARAMETER, ResponseCode.NO_PERMISSION), where
            continue
        (theirs,) = RemotingConnection().receive_data(base64.b64decode(recorded[row["seq"]]["frame_b64"]))
        mine, said = body_shape(ours, code), body_shape(theirs, code)
        if ours.code == theirs.code and is_alike(mine, said):
            compared[code] += 1
        elif not MISSING.search(ours.remark or "") and not by_sql(row):
            differing.append(
                f"{where}\n  {ours.code} {ours.remark} {mine}\n  {theirs.code} {theirs.remark} {said}"
            )
    assert not differing, "\n".join(differing)
    assert len(compared) == 38, sorted(compared)
    assert compared.total() > 300
