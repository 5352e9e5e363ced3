"""What of an entry is exported: one row per entry, or per entry of one topic."""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa

from pyspark_dledger.arrow_batches import arrow_schema
from pyspark_dledger.entry_columns import Place, Selection
from pyspark_dledger.schema import BODY, BROKER, WIRE_ENTRY_COLUMN_NAMES

BodyChoice = Literal["stored", "inflated", "none"]
# Where an entry lies on a member's disk is no part of it, and which group of brokers has it the manifest says.
_NAMES: Final = tuple(name for name in WIRE_ENTRY_COLUMN_NAMES if name != BROKER.name)


def selection_of(topic: str, body: BodyChoice) -> Selection:
    """`topic`: "" for all."""
    names = _NAMES if body != "none" else tuple(name for name in _NAMES if name != BODY.name)
    return Selection(names, topic=topic or None, inflate=body == "inflated")


def place_of(group: str) -> Place:
    return Place("", group, "")


def schema_of(selection: Selection) -> pa.Schema:
    return arrow_schema(selection.columns)
