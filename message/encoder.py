"""A message as a CommitLog record. The caller has encoded all parts; here they are laid out, once, at put
time."""

from zlib_ng.zlib_ng import crc32

from message.decoder import MessageExt
from message.errors import MessageEncodeError
from message.message_id import pack_host
from message.properties import PROPERTIES_LENGTH_MAX
from message.record_layout import (
    MESSAGE_MAGIC_V1,
    MESSAGE_MAGIC_V2,
    RECORD_HEADS,
    TOPIC_LENGTH_MAX_V1,
    TOPIC_LENGTH_MAX_V2,
)
from message.sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG

_PACK_HEADS = tuple(head.pack for head in RECORD_HEADS)
# Length fields of everyday topics, made once.
_TOPIC_LENGTHS_V1 = tuple(length.to_bytes(1, "big") for length in range(TOPIC_LENGTH_MAX_V1 + 1))


def record_size(
    topic_len: int,
    properties_len: int,
    body_len: int,
    *,
    v2: bool = False,
    born_v6: bool = False,
    store_v6: bool = False,
) -> int:
    """Bytes of a record whose parts have these lengths in bytes."""
    size = 91 + body_len + topic_len + properties_len
    if v2 or topic_len > TOPIC_LENGTH_MAX_V1:
        size += 1
    if born_v6:
        size += 12
    if store_v6:
        size += 12
    return size


def encode_record(
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    phy_offset: int,
    sys_flag: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    properties: bytes,
    *,
    v2: bool = False,
) -> bytes:
    """Timestamps in ms, hosts packed (8 or 20 bytes, as sys_flag says), `body` as it is to be stored.

    A topic of more than 127 bytes makes a V2 record; `v2` asks for one anyway. Raises MessageEncodeError
    for a topic or properties beyond their length fields and for hosts that contradict sys_flag.
    """
    topic_length = len(topic)
    properties_length = len(properties)
    body_length = len(body)
    v6 = sys_flag >> 4 & 3
    if properties_length > PROPERTIES_LENGTH_MAX or topic_length > TOPIC_LENGTH_MAX_V2:
        raise MessageEncodeError(
            f"topic has {topic_length} bytes (limit {TOPIC_LENGTH_MAX_V2}), "
            f"properties have {properties_length} (limit {PROPERTIES_LENGTH_MAX})"
        )
    if len(born_host) + len(store_host) != 16 or v6:
        _check_hosts(sys_flag, born_host, store_host)
    size = 91 + body_length + topic_length + properties_length + (0, 12, 12, 24)[v6]
    if v2 or topic_length > 127:
        size += 1
        magic = MESSAGE_MAGIC_V2
        topic_length_field = topic_length.to_bytes(2, "big")
    else:
        magic = MESSAGE_MAGIC_V1
        topic_length_field = _TOPIC_LENGTHS_V1[topic_length]
    head = _PACK_HEADS[v6](
        size,
        magic,
        crc32(body) & 0x7FFFFFFF,
        queue_id,
        flag,
        queue_offset,
        phy_offset,
        sys_flag,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        body_length,
    )
    return b"".join((head, body, topic_length_field, topic, properties_length.to_bytes(2, "big"), properties))


def encode_again(message: MessageExt, topic: bytes, queue_id: int, properties: bytes) -> bytes:
    """A message that was read, as a record of `topic` and `queue_id`. It still says where it lies. Raises
    MessageEncodeError.
    """
    return encode_record(
        topic,
        queue_id,
        message.flag,
        message.queue_offset,
        message.phy_offset,
        message.sys_flag,
        message.born_timestamp,
        pack_host(message.born_host),
        message.store_timestamp,
        pack_host(message.store_host),
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        properties,
    )


def _check_hosts(sys_flag: int, born_host: bytes, store_host: bytes) -> None:
    born_size = 20 if sys_flag & BORNHOST_V6_FLAG else 8
    store_size = 20 if sys_flag & STOREHOSTADDRESS_V6_FLAG else 8
    if len(born_host) != born_size or len(store_host) != store_size:
        raise MessageEncodeError(
            f"sysFlag {sys_flag:#x} wants hosts of {born_size} and {store_size} bytes, "
            f"got {len(born_host)} and {len(store_host)}"
        )
