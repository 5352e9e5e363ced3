"""The tables of entries and of messages: their columns, in their order, with what they mean. docs/pipeline.md prints
them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final


class SchemaError(ValueError):
    """A column was asked for that the table does not have. The text lists those it has."""


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    sql_type: str  # as Spark SQL writes it
    meaning: str
    of_message: bool = False  # it comes from the record in the entry; null where that cannot be read


COLUMNS: Final = (
    Column(
        "replica", "string", "the member's name, `n0` for `dledger-n0`; the directory's for a plain CommitLog"
    ),
    Column("group", "string", "the group's uuid, 16 hex digits of it; empty in Java's stores"),
    Column("file", "string", "data file, relative to the store directory"),
    Column("pos", "bigint", "position of the entry in the log; of the record in a plain CommitLog"),
    Column("index", "bigint", "of the entry; null in a plain CommitLog, as are term, kind and the two CRCs"),
    Column("term", "bigint", "in which the entry was appended"),
    Column("size", "int", "bytes, the 48 of the entry's header included"),
    Column(
        "kind", "string", "message, no_op, membership, state; a number for one that a newer version wrote"
    ),
    Column("chain_crc", "int", "as it is stored; 0 in Java's entries"),
    Column("body_crc", "int", "of the whole record, as it is stored; 0 in Java's entries"),
    Column(
        "fault",
        "string",
        "what the checks say against the entry, in the words of docs/validation.md; null: sound",
    ),
    Column("digest", "binary", "mmh3 (x64, 128 bits) of the entry's bytes, header included"),
    Column(
        "of_deleted_topic",
        "boolean",
        "its topic was deleted behind it, so no consumer gets it, whatever topic has the name now; as far as the "
        "member's newest checkpoint knows",
        of_message=True,
    ),
    Column("topic", "string", "", of_message=True),
    Column("queue_id", "int", "", of_message=True),
    Column(
        "queue_offset",
        "bigint",
        "number of the message in its queue; of an inner batch, which is one row, that of its first message",
        of_message=True,
    ),
    Column(
        "phy_offset",
        "bigint",
        "as the record says it: pos + 48, or pos in a plain CommitLog",
        of_message=True,
    ),
    Column("msg_id", "string", "the broker's: store host and phy_offset in hex", of_message=True),
    Column("uniq_key", "string", "the sending client's id of the message", of_message=True),
    Column("keys", "string", "blank separated", of_message=True),
    Column("tags", "string", "", of_message=True),
    Column(
        "properties",
        "map<string,string>",
        "all of them, those with columns of their own too",
        of_message=True,
    ),
    Column(
        "born_timestamp",
        "timestamp",
        "the client's clock; null outside of the years 1 to 9999",
        of_message=True,
    ),
    Column("born_host", "string", "ip:port of the client", of_message=True),
    Column(
        "store_timestamp",
        "timestamp",
        "the leader's clock; null outside of the years 1 to 9999",
        of_message=True,
    ),
    Column("store_host", "string", "ip:port of the leader that stored it", of_message=True),
    Column(
        "sys_flag", "int", "bits: 1 compressed, 4 and 8 transaction, 16 and 32 IPv6 hosts", of_message=True
    ),
    Column("flag", "int", "the user's", of_message=True),
    Column("reconsume_times", "int", "", of_message=True),
    Column("prepared_transaction_offset", "bigint", "", of_message=True),
    Column("message_size", "int", "bytes of the record", of_message=True),
    Column("message_body_crc", "int", "CRC-32 of the stored body, without its highest bit", of_message=True),
    Column("body_size", "int", "bytes of the body as it is stored", of_message=True),
)
# Only when it is asked for: it is most of the bytes.
BODY: Final = Column("body", "binary", "null where it cannot be inflated", of_message=True)
COLUMN_NAMES: Final = tuple(column.name for column in COLUMNS)
OF_MESSAGE: Final = frozenset(column.name for column in (*COLUMNS, BODY) if column.of_message)
# Where a message of a queue was read, which its record does not say.
BROKER: Final = Column("broker", "string", "name of the group of brokers that has the queue")
# Beside `body`, where a format of bodies is asked for.
CORRUPT: Final = Column("_corrupt", "binary", "a body that is not of the format; `body` is null then")
SQL_TYPES: Final = {column.name: column.sql_type for column in (*COLUMNS, BROKER, BODY, CORRUPT)}
# Of the messages in queues: what says of an entry how it lies in a log is not among them.
MESSAGE_COLUMN_NAMES: Final = (
    "topic",
    BROKER.name,
    *(name for name in COLUMN_NAMES if name in OF_MESSAGE - {"topic", "of_deleted_topic"}),
    BODY.name,
)

# Of entries that a member gives, whole and proved: where they lie on its disk is its own matter.
WIRE_ENTRY_COLUMN_NAMES: Final = (
    BROKER.name,
    *(name for name in COLUMN_NAMES if name not in ("replica", "file", "of_deleted_topic")),
    BODY.name,
)


def check_names(names: Iterable[str], known: Collection[str] = (*COLUMN_NAMES, BODY.name)) -> tuple[str, ...]:
    """Raises SchemaError for names that are not `known`, for none, and for one given twice."""
    checked = tuple(names)
    there_are = f"columns are {', '.join(known)}"
    if not checked:
        raise SchemaError(f"no column is asked for: {there_are}")
    for number, name in enumerate(checked):
        if name not in known:
            raise SchemaError(f"{name!r} is no column: {there_are}")
        if name in checked[:number]:
            raise SchemaError(f"column {name} is asked for twice")
    return checked


def ddl(names: Iterable[str], body_type: str = BODY.sql_type) -> str:
    """As Spark reads it."""
    types = SQL_TYPES | {BODY.name: body_type}
    return ", ".join(f"`{name}` {types[name]}" for name in names)
