"""Numbers for what a history names by strings, and values by number that cost eight bytes each."""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)

_INDEX_BITS: Final = 40
_INDEX_LIMIT: Final = 1 << _INDEX_BITS
_NEXT_TO_END: Final = 4096
_ABSENT: Final = -1


class Numbered(Generic[_Key]):
    """(key, index) as one number from 0, and back: a producer and its sequence, a queue and its offset."""

    def __init__(self) -> None:
        self._numbers: dict[_Key, int] = {}
        self._keys: list[_Key] = []

    def pack(self, key: _Key, index: int) -> int:
        """Raises ValueError for an index that no run can come to."""
        if not 0 <= index < _INDEX_LIMIT:
            raise ValueError(f"{key}: {index} is not within 0 and {_INDEX_LIMIT}")
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._keys)
            self._keys.append(key)
        return number << _INDEX_BITS | index

    def unpack(self, packed: int) -> tuple[_Key, int]:
        return self._keys[packed >> _INDEX_BITS], packed & (_INDEX_LIMIT - 1)


class Values:
    """A number from 0 by packed (key, index). Indexes that follow each other lie in an array; strays, which a bad
    history may have anywhere, in a dict.
    """

    def __init__(self) -> None:
        self._rows: dict[int, array[int]] = {}
        self._strays: dict[int, int] = {}

    def get(self, packed: int) -> int | None:
        row = self._rows.get(packed >> _INDEX_BITS)
        index = packed & (_INDEX_LIMIT - 1)
        if row is not None and index < len(row):
            value = row[index]
            if value != _ABSENT:
                return value
        return self._strays.get(packed)

    def put(self, packed: int, value: int) -> None:
        row = self._rows.setdefault(packed >> _INDEX_BITS, array("q"))
        index = packed & (_INDEX_LIMIT - 1)
        if index >= len(row) + _NEXT_TO_END:
            self._strays[packed] = value
            return
        self._strays.pop(packed, None)
        if index >= len(row):
            row.extend([_ABSENT] * (index + 1 - len(row)))
        row[index] = value

    def items(self) -> list[tuple[int, int]]:
        """Of tests and of what is looked through at the end."""
        return [
            *(
                (number << _INDEX_BITS | index, value)
                for number, row in self._rows.items()
                for index, value in enumerate(row)
                if value != _ABSENT
            ),
            *self._strays.items(),
        ]


class Flags(Values):
    """Values that are flags."""

    def add(self, packed: int, flags: int) -> int:
        """Returns all of its flags, with these."""
        all_flags = (self.get(packed) or 0) | flags
        self.put(packed, all_flags)
        return all_flags

    def add_first(self, packed: int, flag: int) -> bool:
        """Adds the flag. Returns False where it was there before."""
        flags = self.get(packed) or 0
        self.put(packed, flags | flag)
        return not flags & flag
