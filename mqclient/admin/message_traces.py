"""What clients with message tracing write to the trace topic: lines of fields, one per send and per consumption."""

from __future__ import annotations

from collections.abc import Iterator

from message.decoder import MessageExt
from mqclient.admin_results import MessageTrace

_LINES_END = "\x02"
_FIELDS_END = "\x01"


def traces_of(message: MessageExt, msg_id: str) -> Iterator[MessageTrace]:
    """Those of one message's unique key. Lines of other kinds, or of a form that nobody knows, are passed over."""
    for line in message.body.decode("utf-8", "replace").split(_LINES_END):
        fields = line.split(_FIELDS_END)
        try:
            match fields:
                case ["Pub", time_ms, _, group, _, id_, _, _, _, _, cost, _, *ends] if id_ == msg_id:
                    # Before 4.5 success stood right here; then the offset message id came before it.
                    success = ends[0] if len(ends) == 1 else ends[1]
                    host = ends[2] if len(ends) > 2 else message.born_host
                    yield MessageTrace("Pub", group, host, int(time_ms), int(cost), success == "true")
                case ["SubAfter", _, id_, cost, success, _, _, time_ms, group, *_] if id_ == msg_id:
                    yield MessageTrace(
                        "Sub", group, message.born_host, int(time_ms), int(cost), success == "true"
                    )
        except (ValueError, IndexError):
            continue
