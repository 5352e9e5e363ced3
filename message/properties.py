"""Message properties: `name \\x01 value \\x02` repeated, UTF-8.

RocketMQ 5.x writes the last \\x02, older writers leave it out; both are read. A pair with an empty name
or value is none. Of two pairs with one name the last counts, as in Java's map.
"""

from collections.abc import Mapping

from message.const import MESSAGE_TTL
from message.errors import MessageEncodeError

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
# Java writes milliseconds, and Go seconds. Nobody waits for less than this for a reply.
_TTL_MS_MIN = 100
PROPERTIES_LENGTH_MAX = 32767  # bytes: the length field is a signed int16


def encode_properties(properties: Mapping[str, str], *, last_separator: bool = True) -> bytes:
    """`last_separator=False` gives the form of 4.x. Raises MessageEncodeError beyond
    PROPERTIES_LENGTH_MAX."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
    encoded = (text if last_separator else text[:-1]).encode("utf-8", "replace")
    if len(encoded) > PROPERTIES_LENGTH_MAX:
        raise MessageEncodeError(
            f"properties have {len(encoded)} bytes, the limit is {PROPERTIES_LENGTH_MAX}"
        )
    return encoded


def decode_properties(encoded: bytes | memoryview) -> dict[str, str]:
    properties: dict[str, str] = {}
    for pair in str(encoded, "utf-8", "replace").split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def find_property(encoded: bytes, name: bytes) -> bytes | None:
    """The value of one property, without decoding the others."""
    wanted = name + b"\x01"
    end = len(encoded)
    while True:
        at = encoded.rfind(b"\x02" + wanted, 0, end)
        if at >= 0:
            start = at + 1 + len(wanted)
        elif encoded.startswith(wanted, 0, end):
            start = len(wanted)
        else:
            return None
        value_end = encoded.find(b"\x02", start)
        value = encoded[start:] if value_end < 0 else encoded[start:value_end]
        if value and name:
            return value
        if at < 0:
            return None
        # An empty value is no pair; an earlier one of this name may be.
        end = at


def pairs_of(encoded: bytes) -> dict[bytes, bytes]:
    """All properties as find_property() finds each of them."""
    pairs = [pair.partition(b"\x01") for pair in encoded.split(b"\x02")]
    return {name: value for name, _, value in pairs if value and name}


def delete_property(encoded: bytes, name: bytes) -> bytes:
    """The properties without any pair of this name."""
    wanted = name + b"\x01"
    if wanted not in encoded:
        return encoded
    ends_open = not encoded.endswith(b"\x02")
    pairs = encoded.split(b"\x02")
    kept = [pair for pair in pairs if not pair.startswith(wanted)]
    if ends_open and pairs[-1].startswith(wanted) and kept:
        kept.append(b"")
    return b"\x02".join(kept)


def join_properties(encoded: bytes, more: bytes) -> bytes:
    """Both, one behind the other. Of two pairs with one name the last counts."""
    separator = b"\x02" if encoded and more and not encoded.endswith(b"\x02") else b""
    return encoded + separator + more


def with_properties(encoded: bytes, added: Mapping[str, str]) -> bytes:
    """`encoded` with the pairs of `added` behind it, in the place of those that have their names. The others stay byte
    by byte. All of it may be longer than PROPERTIES_LENGTH_MAX.
    """
    for name in added:
        encoded = delete_property(encoded, name.encode())
    return join_properties(encoded, encode_properties(added))


def number_of(properties: Mapping[str, str], name: str) -> int | None:
    """The whole number that a property is, of up to 18 digits; None for anything else, or without the property."""
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def ttl_ms_of(properties: Mapping[str, str]) -> int | None:
    """How long a request waits for its reply; None where it does not say that, or says what is no time."""
    ttl = number_of(properties, MESSAGE_TTL) or 0
    return (ttl * 1000 if ttl < _TTL_MS_MIN else ttl) or None
