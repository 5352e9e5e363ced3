"""Every request that Java's brokers were recorded with, asked of ours: answers of the same code and the same shape.

All recordings of one broker are given to one of ours, in their order and with the recorded time passing in between, so
that topics, groups, offsets and connections are there when somebody asks for them; what clients answered to the
broker's own requests is given as answers of theirs. Values are the run's own, so shapes are compared: which names an
object has, and of what kind the values are. Where ours answers otherwise, it is for one of the reasons named here.
Exact values are compared in test_broker_recorded.py and test_retries_recorded.py.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from one_broker import OneBroker, RecordingChannel
from test_retries_recorded import command_of, messages_of, pulled

from broker.processors.pull.pull_message_processor import SUSPEND_FLAG
from message.names import HIDDEN_TOPICS, TRANS_HALF_TOPIC
from remoting.codes import RequestCode, ResponseCode
from remoting.fastjson import loads_fastjson
from remoting.frame.command import RemotingCommand, response

WIRE = Path(__file__).parents[2] / "golden" / "wire"
Row = dict[str, Any]


class Compared(NamedTuple):
    """One request, and what the two brokers said to it."""

    row: Row
    asked: RemotingCommand
    ours: RemotingCommand
    theirs: RemotingCommand
    is_of_unknown_place: bool  # in Java's log, of a message that ours cannot be asked for

    @property
    def code(self) -> int:
        return self.asked.code

    @property
    def is_of_49(self) -> bool:
        return bool(self.row["to"] == "broker-4.9.5")

    def has(self, part: bytes) -> bool:
        """Whether the request says so, in its header or its body."""
        return part in base64.b64decode(self.row["frame_b64"])


# Codes that ours does not serve, and by whom it will be.
NOT_SERVED: dict[int, str] = {
    RequestCode.GET_ALL_CONSUMER_OFFSET: "what a slave copies: our followers have the log",
    RequestCode.QUERY_CORRECTION_OFFSET: "correction of offsets, of static topics",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: "static topics",
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: "cold data flow control",
}
# Why ours says something else where it does serve the code.
REASONS: dict[str, Callable[[Compared], bool]] = {
    "RocketMQ's check pulls halves and op records, which its statistics count": lambda pair: (
        pair.code == RequestCode.VIEW_BROKER_STATS_DATA and pair.has(b"@CID_RMQ_SYS_TRANS")
    ),
    "halves and op records, which no consumer is given": lambda pair: (
        pair.code == RequestCode.PULL_MESSAGE
        and pair.asked.ext_fields["topic"] in HIDDEN_TOPICS
        and pair.ours.code == ResponseCode.NO_PERMISSION
    ),
    "4.9 makes the topic of op records later": lambda pair: (
        pair.is_of_49 and pair.has(b"RMQ_SYS_TRANS_OP_HALF_TOPIC")
    ),
    "a reply that waited until its requester came": lambda pair: (
        pair.code == RequestCode.SEND_REPLY_MESSAGE_V2
        and (pair.theirs.code, pair.ours.code) == (ResponseCode.SYSTEM_ERROR, ResponseCode.SUCCESS)
        and (pair.theirs.remark or "").endswith("not found.")
    ),
    "filters that cannot be read, for which Java delivers everything": lambda pair: (
        pair.code == RequestCode.PULL_MESSAGE and pair.ours.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    ),
    "messages and consumers that were there before the recording began": lambda pair: (
        (
            pair.has(b"GoldenSql")
            and (
                pair.code == RequestCode.VIEW_BROKER_STATS_DATA
                or pair.ours.code == ResponseCode.PULL_OFFSET_MOVED
            )
        )
        or (pair.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP and pair.has(b"g_sql_pull"))
    ),
    "topics and groups of pop consumers": lambda pair: (
        pair.has(b"GoldenPop") or pair.has(b"g_pop_") or pair.has(b"_REVIVE_")
    ),
    "an exception of Java's own": lambda pair: bool(
        re.match(r"java\.|org\.apache", pair.theirs.remark or "")
    ),
    "users and policies, which the recorded broker had nowhere to keep": lambda pair: (
        3001 <= pair.code <= 3010 and pair.theirs.code == ResponseCode.SYSTEM_ERROR
    ),
    "settings that have no effect here": lambda pair: (
        pair.code == RequestCode.UPDATE_BROKER_CONFIG and "no effect" in (pair.ours.remark or "")
    ),
    # It differs when which consumer hears of it.
    "a reset": lambda pair: "OFFSET_RESET" in (pair.ours.remark, pair.theirs.remark),
    "a message that no recording brings": lambda pair: (
        pair.has(b"g_sb_c") or (pair.code == RequestCode.VIEW_MESSAGE_BY_ID and pair.is_of_unknown_place)
    ),
    "when a pull that may be held was answered": lambda pair: (
        pair.code == RequestCode.PULL_MESSAGE
        and int(pair.asked.ext_fields["sysFlag"]) & SUSPEND_FLAG != 0
        and {pair.ours.code, pair.theirs.code} <= WHEN_HELD
    ),
    "the load of the recorded machine": lambda pair: "TIMEOUT_CLEAN_QUEUE" in (pair.theirs.remark or ""),
    "4.9 says 1 where 5.x says 29": lambda pair: (
        pair.is_of_49
        and (pair.theirs.code, pair.ours.code) == (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    ),
    "4.9 stores messages without a body": lambda pair: (
        pair.is_of_49 and (pair.code == RequestCode.SEND_MESSAGE or pair.has(b"GoldenOne"))
    ),
    "4.9 begins with 0 in a queue that does not exist, and commits offsets of topics that do not": lambda pair: (
        pair.is_of_49
        and pair.code in (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET)
        and pair.ours.code in (ResponseCode.QUERY_NOT_FOUND, ResponseCode.TOPIC_NOT_EXIST)
    ),
}
# Requests that wait for messages, in which the two brokers differ by what was sent before.
HELD = (RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.NOTIFICATION)
WHEN_HELD = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
}
# Keys of these maps are data.
MAPS = frozenset(
    {
        "subscriptionTable",
        "data",
        "topicConfigTable",
        "subscriptionGroupTable",
        "offsetTable",
        "table",
        "consumerTable",
        "timingCount",
    }
)
# Only one of the two sides has them: what we do not know, and what is for people.
OPTIONAL = frozenset(
    {
        "totalInflightDiff",
        "bitMap",
        "msg",
        "groupTopicMap",
        "consumeTimeStampStr",
        "maxTimeStampStr",
        "minTimeStampStr",
    }
)


def rows_of(broker: str) -> list[Row]:
    rows: list[Row] = []
    for path in sorted(WIRE.glob("*.jsonl.gz")):
        if path.name.startswith("dledger_"):
            continue
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if broker in (row["from"], row["to"]):
                    row["file"] = path.name
                    rows.append(row)
    return sorted(rows, key=lambda row: int(row["seq"]))


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
        return theirs.keys() <= ours.keys() and all(is_alike(ours[key], theirs[key]) for key in theirs)
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


class Replay:
    """Gives the rows of one recorded broker to one of ours."""

    def __init__(self, broker: OneBroker, name: str, rows: list[Row]) -> None:
        self._broker = broker
        self._name = name
        self._rows = rows
        self._answers = {
            (row["conn"], row["reply_to_code"]): row
            for row in rows
            if row["kind"] == "response" and row["from"] != name
        }
        self._pulled = pulled([row for row in rows if "frame_b64" in row])
        self.channels: dict[int, RecordingChannel] = {}
        self.unknown_places: set[int] = set()  # sequence numbers of requests for them

    def run(self) -> None:
        for row in self._rows:
            self._give(row)
        self._broker.run_for(20_000)

    def _give(self, row: Row) -> None:
        broker = self._broker
        while broker.now_ms < int(row["t"]):
            broker.tick(min(500, int(row["t"]) - broker.now_ms))
        conn = row["conn"]
        channel = self.channels.setdefault(conn, RecordingChannel(conn))
        if row["kind"] == "close":
            broker.controller.pipeline.channel_closed(channel)
        if row["to"] != self._name or row["kind"] not in ("request", "oneway"):
            return
        broker.receive([self._pointed_at_ours(row)], channel)
        broker.settle()
        self._answer_for_clients()

    def _pointed_at_ours(self, row: Row) -> RemotingCommand:
        """A place in Java's log becomes that of the same message in ours."""
        command = command_of(row)
        if command.code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.VIEW_MESSAGE_BY_ID):
            theirs = self._pulled.get(int(command.ext_fields["offset"]))
            known = messages_of(self._broker, theirs.topic, theirs.queue_id) if theirs is not None else []
            self.unknown_places.add(row["seq"])
            for ours in known:
                assert theirs is not None
                if (ours.uniq_key, ours.reconsume_times) == (theirs.uniq_key, theirs.reconsume_times):
                    command.ext_fields["offset"] = str(ours.phy_offset)
                    self.unknown_places.discard(row["seq"])
        if command.code == RequestCode.END_TRANSACTION:
            # Java's may be that of a half that was put again; ours stays where it is.
            for half in messages_of(self._broker, TRANS_HALF_TOPIC, 0):
                if half.uniq_key == command.ext_fields["msgId"]:
                    command.ext_fields["commitLogOffset"] = str(half.phy_offset)
                    command.ext_fields["tranStateTableOffset"] = str(half.queue_offset)
        return command

    def _answer_for_clients(self) -> None:
        """With what the recorded client of that connection once answered to that code."""
        for conn, channel in self.channels.items():
            for asked in [c for c in channel.received if not c.is_response and not c.is_oneway]:
                recorded = self._answers.get((conn, asked.code))
                if recorded is not None:
                    said = command_of(recorded)
                    answer = response(asked, said.code, said.remark, body=bytes(said.body))
                    self._broker.receive([answer], channel)
            channel.received = [c for c in channel.received if c.is_response]


def is_of_the_same_shape(pair: Compared) -> bool:
    """All that Java's says, ours says: 5.5.0 says some things that 4.9.5 does not."""
    return (
        pair.ours.code == pair.theirs.code
        and pair.theirs.ext_fields.keys() <= pair.ours.ext_fields.keys()
        and is_alike(body_shape(pair.ours, pair.code), body_shape(pair.theirs, pair.code))
    )


@pytest.mark.slow
@pytest.mark.parametrize(("name", "compared_min"), [("broker-a", 1_300), ("broker-4.9.5", 200)])
def test_every_recorded_request_gets_an_answer_of_the_recorded_shape(
    tmp_path: Path, name: str, compared_min: int
) -> None:
    rows = rows_of(name)
    broker = OneBroker(tmp_path, "flushDiskType=ASYNC_FLUSH\n", now_ms=int(rows[0]["t"]) - 1000)
    replay = Replay(broker, name, rows)
    replay.run()
    broker.close()
    recorded = {row["reply_to"]: row for row in rows if row["kind"] == "response" and row["from"] == name}
    reasons: Counter[str] = Counter()
    differing: list[str] = []
    compared = 0
    for row in rows:
        if row["kind"] != "request" or row["to"] != name or row["seq"] not in recorded:
            continue
        asked, theirs = command_of(row), command_of(recorded[row["seq"]])
        ours = replay.channels[row["conn"]].response_to(row["opaque"])
        if ours is None:
            assert asked.code in HELD, row["seq"]
            reasons["a pull or pop that was held"] += 1
            continue
        pair = Compared(row, asked, ours, theirs, row["seq"] in replay.unknown_places)
        if ours.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and asked.code in NOT_SERVED:
            reasons[NOT_SERVED[asked.code]] += 1
        elif is_of_the_same_shape(pair):
            compared += 1
        else:
            reason = next((text for text, holds in REASONS.items() if holds(pair)), None)
            if reason is None:
                differing.append(
                    f"{row['file']} {row['seq']} {row['code_name']} {asked.ext_fields}\n"
                    f"  {ours.code} {ours.remark} {body_shape(ours, asked.code)} {sorted(ours.ext_fields)}\n"
                    f"  {theirs.code} {theirs.remark} {body_shape(theirs, asked.code)} {sorted(theirs.ext_fields)}"
                )
            else:
                reasons[reason] += 1
    assert not differing, "\n".join(differing)
    assert compared > compared_min, reasons
