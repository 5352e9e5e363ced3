"""Header fields as HPACK writes them (RFC 7541), as fast as a loop in Python gets.

The static table and the Huffman code are those of the library hpack. Its decoder takes half the time of a whole call:
here an entry is made a pair of texts once, when it enters the table, and an indexed field is one look into a list.
What we send uses no dynamic table, so a header block of ours means the same at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hpack.exceptions import HPACKError
from hpack.huffman_table import decode_huffman
from hpack.table import HeaderTable

TABLE_SIZE_MAX = 4096  # what a peer takes for granted; we never say otherwise
ENTRY_OVERHEAD = 32  # what an entry counts beside its name and value (RFC 7541, section 4.1)
TABLE_OF_SIZE_0 = (
    b"\x20"  # at the start of our first block: so no later setting of the peer is below our size
)

_INTEGER_BYTES_MAX = 5
# Capitals are malformed in HTTP/2, and so are the other characters that no token has. A colon begins HTTP's own names.
_NAME = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_NOT_IN_VALUE = re.compile(rb"[\0\r\n]")

Field = tuple[str, str]
_Entry = tuple[str, str, int]  # and what it counts in the table and in the list of a request


class HeaderBlockError(Exception):
    """The bytes are no header block, so the peer's table and ours differ from here on."""


class MalformedFieldError(Exception):
    """A field has a name or a value that HTTP forbids."""


def _entry(name: bytes, value: bytes) -> _Entry:
    return name.decode("latin-1"), value.decode("utf-8", "replace"), len(name) + len(value) + ENTRY_OVERHEAD


_STATIC = [("", "", 0), *(_entry(name, value) for name, value in HeaderTable.STATIC_TABLE)]
_STATIC_COUNT = len(_STATIC)


class HeaderDecoder:
    """The fields that one peer sends. Invariant: `_size` is the sum over `_dynamic`, and at most `_size_max`."""

    def __init__(self, list_size_max: int) -> None:
        self._list_size_max = list_size_max
        self._dynamic: list[_Entry] = []  # the newest last
        self._size = 0
        self._size_max = TABLE_SIZE_MAX

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields in their order. Raises HeaderBlockError and MalformedFieldError."""
        try:
            return self._decode(block)
        except IndexError:
            raise HeaderBlockError("the block ends in a field, or an index is in no table") from None

    def _decode(self, block: bytes) -> list[Field]:
        fields: list[Field] = []
        dynamic = self._dynamic
        position, end, list_size = 0, len(block), 0
        while position < end:
            byte = block[position]
            position += 1
            if byte >= 0x80:  # indexed
                index = byte & 0x7F
                if index == 0x7F:
                    index, position = _integer(block, position, 0x7F)
                name, value, size = self._found(index)
            elif byte & 0xE0 == 0x20:
                if fields:
                    raise HeaderBlockError("the size of the table changes after a field")
                size = byte & 0x1F
                if size == 0x1F:
                    size, position = _integer(block, position, 0x1F)
                if size > TABLE_SIZE_MAX:
                    raise HeaderBlockError(f"a table of {size} bytes, where {TABLE_SIZE_MAX} are agreed on")
                self._size_max = size
                self._evict(0)
                continue
            else:  # a literal; 0x40: it enters the table
                mask = 0x3F if byte & 0x40 else 0x0F
                index = byte & mask
                if index == mask:
                    index, position = _integer(block, position, mask)
                if index:
                    name = self._found(index)[0]
                else:
                    raw_name, position = _string(block, position)
                    if _NAME.fullmatch(raw_name) is None:
                        raise MalformedFieldError(f"a field has the name {raw_name[:40]!r}")
                    name = raw_name.decode("ascii")
                raw_value, position = _string(block, position)
                if _NOT_IN_VALUE.search(raw_value) is not None:
                    raise MalformedFieldError(f"the value of {name} holds a control character")
                value = raw_value.decode("utf-8", "replace")
                size = len(name) + len(raw_value) + ENTRY_OVERHEAD
                if byte & 0x40:
                    self._evict(size)
                    if size <= self._size_max:
                        dynamic.append((name, value, size))
                        self._size += size
            list_size += size
            if list_size > self._list_size_max:
                raise HeaderBlockError(f"more than {self._list_size_max} bytes of header fields")
            fields.append((name, value))
        return fields

    def _found(self, index: int) -> _Entry:
        if index >= _STATIC_COUNT:
            return self._dynamic[_STATIC_COUNT - 1 - index]
        if not index:
            raise HeaderBlockError("index 0")
        return _STATIC[index]

    def _evict(self, size: int) -> None:
        """Make room for an entry of that size. One that is larger than the table empties it."""
        count = 0
        while self._size + size > self._size_max and count < len(self._dynamic):
            self._size -= self._dynamic[count][2]
            count += 1
        del self._dynamic[:count]


def encode_fields(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Write fields as literals that enter no table."""
    out = bytearray()
    for name, value in fields:
        out.append(0)
        for text in (name, value):
            _append_size(out, len(text))
            out += text
    return bytes(out)


def _append_size(out: bytearray, size: int) -> None:
    if size < 0x7F:
        out.append(size)
        return
    out.append(0x7F)
    size -= 0x7F
    while size >= 0x80:
        out.append(size & 0x7F | 0x80)
        size >>= 7
    out.append(size)


def _integer(block: bytes, position: int, prefix: int) -> tuple[int, int]:
    number = prefix
    for count in range(_INTEGER_BYTES_MAX):
        byte = block[position + count]
        number += (byte & 0x7F) << 7 * count
        if byte < 0x80:
            return number, position + count + 1
    raise HeaderBlockError("a number has too many bytes")


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    first = block[position]
    position += 1
    size = first & 0x7F
    if size == 0x7F:
        size, position = _integer(block, position, 0x7F)
    end = position + size
    if end > len(block):
        raise HeaderBlockError("a text is longer than its block")
    text = block[position:end]
    if first & 0x80:
        try:
            text = decode_huffman(text)
        except HPACKError as error:
            raise HeaderBlockError(str(error)) from None
    return text, end
