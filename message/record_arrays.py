"""The same as record_columns, at the speed of arrays, for records of the usual form: IPv4 hosts, a short topic, nothing
wrong with their lengths.

For readers of whole logs that have numpy; no broker imports this. What is unusual is left to `read_records`.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from message.record_layout import HOSTS_V6_MASK, MESSAGE_MAGIC_V1, RECORD_HEAD_V4, RECORD_SIZE_MIN

Numbers = NDArray[np.int64]

# RECORD_HEAD_V4 as an array's row.
HEAD_V4: Final = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">i4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("phy_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_host", "V8"),
        ("store_timestamp", ">i8"),
        ("store_host", "V8"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)
assert HEAD_V4.itemsize == RECORD_HEAD_V4.size


class RecordArrays(msgspec.Struct):
    """One row per record; positions are in the buffer. `heads` has HEAD_V4's fields, big-endian as they are stored."""

    heads: NDArray[Any]
    head_bytes: NDArray[np.uint8]  # the same as bytes, one row per record
    body_starts: Numbers
    topic_starts: Numbers
    topic_ends: Numbers
    ends: Numbers  # of the records; properties begin 2 bytes behind the topic

    def __len__(self) -> int:
        return len(self.ends)

    def topics(self, buffer: bytes) -> list[bytes]:
        return _slices(buffer, self.topic_starts, self.topic_ends)

    def properties(self, buffer: bytes) -> list[bytes]:
        return _slices(buffer, self.topic_ends + 2, self.ends)

    def bodies(self, buffer: bytes) -> list[bytes]:
        return _slices(buffer, self.body_starts, self.topic_starts - 1)

    def of_topic(self, buffer: bytes, topic: bytes) -> NDArray[np.intp]:
        """The numbers of the rows with this topic."""
        alike = np.flatnonzero(self.topic_ends - self.topic_starts == len(topic))
        starts = self.topic_starts[alike].tolist()
        length = len(topic)
        return alike[[buffer[start : start + length] == topic for start in starts]]

    def rows(self, numbers: NDArray[np.intp]) -> "RecordArrays":
        return RecordArrays(
            self.heads[numbers],
            self.head_bytes[numbers],
            self.body_starts[numbers],
            self.topic_starts[numbers],
            self.topic_ends[numbers],
            self.ends[numbers],
        )


def gather(buffer: bytes, offsets: Numbers, size: int) -> NDArray[np.uint8]:
    """`size` bytes from each offset on, one row each. They must lie in the buffer."""
    rows: NDArray[np.uint8] = np.frombuffer(buffer, np.uint8)[offsets[:, None] + np.arange(size)]
    return rows


def read_arrays(buffer: bytes, offsets: Sequence[int], *, shift: int = 0) -> RecordArrays | None:
    """None where a record is not of the usual form. CRCs are not looked at."""
    starts = np.asarray(offsets, np.int64) + shift
    if len(starts) == 0 or starts.max() + RECORD_SIZE_MIN > len(buffer):
        return None
    head_bytes = gather(buffer, starts, HEAD_V4.itemsize)
    heads = head_bytes.view(HEAD_V4)[:, 0]
    body_lengths = heads["body_length"].astype(np.int64)
    ends = starts + heads["size"]
    body_starts = starts + HEAD_V4.itemsize
    topic_starts = body_starts + body_lengths + 1
    if (
        (heads["magic"] != MESSAGE_MAGIC_V1).any()
        or (heads["sys_flag"] & HOSTS_V6_MASK).any()
        or body_lengths.min() < 0
        or ends.max() > len(buffer)
        or (topic_starts + 2 > ends).any()
    ):
        return None
    everything = np.frombuffer(buffer, np.uint8)
    topic_ends = topic_starts + everything[topic_starts - 1]
    if (topic_ends + 2 > ends).any():
        return None
    lengths = everything[topic_ends].astype(np.int64) << 8 | everything[topic_ends + 1]
    if (topic_ends + 2 + lengths != ends).any():
        return None
    return RecordArrays(heads, head_bytes, body_starts, topic_starts, topic_ends, ends)


def _slices(buffer: bytes, starts: Numbers, ends: Numbers) -> list[bytes]:
    return [buffer[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
