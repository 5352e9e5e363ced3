"""Properties of many messages as Arrow arrays: the map column, and single properties beside it.

What a property is, message.properties says. Arrow's string functions read what is usual, valid UTF-8 without a name
twice in one message; for anything else `decode_properties` reads that run, message by message.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from message.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR, decode_properties

# Names of one run, one bit each. A message has fewer than 2^14 pairs, so no sum of such bits leaves 64.
_NAMES_MAX = 48


class PropertyColumns:
    """Of one row per message; a row is null where the encoded properties are None."""

    def __init__(self, encoded: Sequence[bytes | None]) -> None:
        self._count = len(encoded)
        self._is_null = np.fromiter((text is None for text in encoded), bool, self._count)
        try:
            read = _usual(encoded)
        except pa.ArrowInvalid:  # no UTF-8
            read = None
        # Pairs of all rows one behind the other; `_rows` says whose each is.
        self._rows, self._names, self._values = read or _any(encoded)

    def maps(self) -> pa.Array:
        ends = np.cumsum(np.bincount(self._rows, minlength=self._count))
        # A row is null where its start is.
        starts = pa.array(np.concatenate(([0], ends)).astype(np.int32), mask=np.append(self._is_null, False))
        return pa.MapArray.from_arrays(starts, self._names, self._values)

    def values_of(self, name: str) -> pa.Array:
        places = np.flatnonzero(pc.equal(self._names, name).to_numpy(zero_copy_only=False))
        taken = np.zeros(self._count, np.int64)
        taken[self._rows[places]] = places
        is_absent = np.ones(self._count, bool)
        is_absent[self._rows[places]] = False
        return pc.take(self._values, pa.array(taken, mask=is_absent))


def texts(encoded: Sequence[bytes | None]) -> pa.Array:
    """UTF-8 as strings, with replacement characters where it is none."""
    try:
        return pa.array(encoded, pa.binary()).cast(pa.string())
    except pa.ArrowInvalid:
        decoded = [None if text is None else str(text, "utf-8", "replace") for text in encoded]
        return pa.array(decoded, pa.string())


def _usual(encoded: Sequence[bytes | None]) -> tuple[NDArray[np.int64], pa.Array, pa.Array] | None:
    """None where a name is twice in one row. Raises ArrowInvalid for what is no UTF-8."""
    rows = pc.split_pattern(pa.array(encoded, pa.binary()).cast(pa.string()), PROPERTY_SEPARATOR)
    parts = pc.split_pattern(rows.flatten(), NAME_VALUE_SEPARATOR, max_splits=1)
    is_pair = pc.equal(pc.list_value_length(parts), 2)
    pairs = pc.filter(parts, is_pair)
    owners = pc.filter(pc.list_parent_indices(rows), is_pair)
    names, values = pc.list_element(pairs, 0), pc.list_element(pairs, 1)
    is_empty = pc.or_(pc.equal(names, ""), pc.equal(values, ""))
    if pc.any(is_empty).as_py():
        kept = pc.invert(is_empty)
        owners, names, values = (pc.filter(array, kept) for array in (owners, names, values))
    owner_numbers = owners.to_numpy(zero_copy_only=False).astype(np.int64)
    return None if _is_repeated(owner_numbers, names) else (owner_numbers, names, values)


def _is_repeated(owners: NDArray[np.int64], names: pa.Array) -> bool:
    """Whether a name is twice in one row; also True where there are too many names to tell quickly."""
    if len(owners) == 0:
        return False
    encoded = names.dictionary_encode()
    if len(encoded.dictionary) > _NAMES_MAX:
        return True
    bits = np.left_shift(np.int64(1), encoded.indices.to_numpy().astype(np.int64))
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    # A sum carries where a bit is in it twice.
    return bool((np.add.reduceat(bits, starts) != np.bitwise_or.reduceat(bits, starts)).any())


def _any(encoded: Sequence[bytes | None]) -> tuple[NDArray[np.int64], pa.Array, pa.Array]:
    decoded = [{} if text is None else decode_properties(text) for text in encoded]
    owners = np.repeat(np.arange(len(decoded)), [len(pairs) for pairs in decoded])
    names = pa.array([name for pairs in decoded for name in pairs], pa.string())
    values = pa.array([value for pairs in decoded for value in pairs.values()], pa.string())
    return owners, names, values
