"""The whole recorded conversation with Java's NameServer, replayed against ours: same answers.

Each request of a recording that our NameServer handles is given to it in the recorded order, connections
opened and closed as then; code, remark, ext fields and body of the answer must be those that Java gave.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from namesrv.kv_config_manager import KVConfigManager
from namesrv.processor import NamesrvProcessor
from namesrv.route_info_manager import RouteInfoManager
from remoting.codes import RequestCode
from remoting.fastjson import loads_fastjson
from remoting.frame.connection import RemotingConnection

WIRE = Path(__file__).parent.parent / "golden" / "wire"

# Other settings, none of which can be changed here.
LEFT_OUT = frozenset({RequestCode.GET_NAMESRV_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG})
# Java answers these from hash maps; only the set of names counts.
UNORDERED = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
    }
)
# What Java leaves in its answers where it says nothing.
NO_REMARK = "not set any response code"


class RecordedChannel:
    def __init__(self, channel_id: int) -> None:
        self.id = channel_id
        self.remote_address = "127.0.0.1:1"
        self.attributes: dict[str, object] = {}
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def conversation(name: str) -> list[dict[str, Any]]:
    rows = []
    for path in WIRE.glob("*.jsonl.gz"):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            rows += [row for row in map(json.loads, lines) if name in (row["to"], row["from"])]
    return sorted(rows, key=lambda row: int(row["seq"]))


def as_4_9(value: Any) -> Any:
    """Without what 5.x added, and with ids as keys that may stand bare."""
    if isinstance(value, dict):
        return {str(key): as_4_9(item) for key, item in value.items() if key != "enableActingMaster"}
    return list(map(as_4_9, value)) if isinstance(value, list) else value


def values_of(frame: bytes, code: int, *, is_of_49: bool) -> tuple[object, ...]:
    (answer,) = RemotingConnection().receive_data(frame)
    body = loads_fastjson(bytes(answer.body)) if answer.body else None
    if code in UNORDERED and isinstance(body, dict):
        body = {**body, "topicList": sorted(body["topicList"])}
    if code == RequestCode.GET_ROUTEINFO_BY_TOPIC and isinstance(body, dict):
        body.pop("topicQueueMappingByBroker", None)  # static topics are not supported
    if is_of_49:
        body = as_4_9(body)
    remark = None if answer.remark == NO_REMARK else answer.remark
    if is_of_49 and remark is not None:
        remark = remark.partition("\nSee ")[0]  # where it leads to has moved
    return answer.code, answer.opaque, remark, answer.ext_fields, body


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "compared_min"),
    [
        (
            "namesrv",
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: 600,
                RequestCode.REGISTER_BROKER: 200,
                RequestCode.GET_BROKER_CLUSTER_INFO: 400,
                RequestCode.UNREGISTER_BROKER: 2,
            },
        ),
        ("namesrv-4.9.5", {RequestCode.GET_ROUTEINFO_BY_TOPIC: 10}),
    ],
)
def test_the_recorded_conversation_has_the_recorded_answers(name: str, compared_min: dict[int, int]) -> None:
    rows = conversation(name)
    recorded = {
        row["reply_to"]: base64.b64decode(row["frame_b64"]) for row in rows if row["kind"] == "response"
    }
    routes = RouteInfoManager()
    processor = NamesrvProcessor(routes, KVConfigManager(), {}, lambda _: None)
    channels: dict[int, RecordedChannel] = {}
    compared: dict[int, int] = {}
    for row in rows:
        if row["kind"] == "close":
            routes.channel_closed(row["conn"])
        if row["kind"] not in ("request", "oneway") or row["code"] in LEFT_OUT or row["to"] != name:
            continue
        channel = channels.setdefault(row["conn"], RecordedChannel(row["conn"]))
        processor.process(
            channel, RemotingConnection().receive_data(base64.b64decode(row["frame_b64"])), int(row["t"])
        )
        routes.expire(int(row["t"]))
        if row["seq"] in recorded:
            code = row["code"]
            ours = values_of(channel.written[-1], code, is_of_49=name != "namesrv")
            assert ours == values_of(recorded[row["seq"]], code, is_of_49=name != "namesrv"), (
                f"frame {row['seq']} code {code}"
            )
            compared[code] = compared.get(code, 0) + 1
    assert all(compared[code] > count for code, count in compared_min.items()), compared
