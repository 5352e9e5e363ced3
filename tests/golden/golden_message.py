"""A decoded message beside what Java's decoder said of it."""

from hashlib import sha1
from importlib.util import find_spec
from typing import Any
from zlib import crc32

from message.compression import decompress
from message.decoder import MessageExt
from message.sys_flag import COMPRESSED_FLAG, CompressionType, clear_compressed_flag, compression_type

INFLATABLE = {
    CompressionType.ZLIB: True,
    CompressionType.LZ4: find_spec("lz4") is not None,
    CompressionType.ZSTD: find_spec("zstandard") is not None,
}


def seen(message: MessageExt) -> dict[str, Any]:
    """The message in the words of an `expected` line. `body_*` only where this machine can inflate the
    body.
    """
    said: dict[str, Any] = {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.phy_offset,
        "storeSize": message.store_size,
        "bornTimestamp": message.born_timestamp,
        "bornHost": "/" + message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": "/" + message.store_host,
        "sysFlag": clear_compressed_flag(message.sys_flag),  # Java's decoder inflated the body
        "flag": message.flag,
        "tags": message.tags,
        "keys": message.keys,
        "properties": message.properties,
        "bodyCRC": message.body_crc,
        "stored_body_len": len(message.body),
        "stored_body_crc32": crc32(message.body) & 0x7FFFFFFF,
        "msgId": message.msg_id,
        "uniqKey": message.uniq_key,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
    }
    body: bytes | None = message.body
    if message.sys_flag & COMPRESSED_FLAG:
        inflatable = INFLATABLE[compression_type(message.sys_flag)]
        body = decompress(message.body, message.sys_flag) if inflatable else None
    if body is not None:
        said["body_len"] = len(body)
        said["body_sha1"] = sha1(body).hexdigest()
    return said


def said(line: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
    """The part of an `expected` message that `seen` speaks of. Nothing that it could say may be left out."""
    open_fields = {"type", "record_sha1", "tagsCode", "body_len", "body_sha1"}
    assert set(line) - open_fields <= set(like)
    return {field: line[field] for field in like}
