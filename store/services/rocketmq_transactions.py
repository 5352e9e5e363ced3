"""What RocketMQ has left of transactions in a store: which halves have ended, as its own check would find it.

It reads op records and halves from the offsets on that CID_RMQ_SYS_TRANS has committed. A half that was put again while
nobody was to be asked about it says where it was before; if that has ended, so has this one.
"""

from collections.abc import Container, Iterator

from message.errors import MessageDecodeError
from message.names import TRANS_GROUP
from store.queues.unit_queue import UnitQueue
from store.services.half_message import HALF_TOPIC_BYTES, OP_TOPIC_BYTES, half_message, op_offsets, stands_for
from store.services.leader_service import LeaderStore

# Of one step.
_RECORDS_MAX = 256


class RocketMQTransactions:
    """After step() has returned True: `begin`, below which all halves have ended, and `ended`, those from there on."""

    def __init__(self, store: LeaderStore) -> None:
        self.begin = 0
        self.ended: set[int] = set()
        self._store = store
        self._steps: Iterator[None] | None = None

    def step(self) -> bool:
        """Returns whether everything is read. Raises UnitDamagedError, MessageDamagedError, DiskError."""
        if self._steps is None:
            self._steps = self._read()
        try:
            next(self._steps)
        except StopIteration:
            self._steps = iter(())
            return True
        except Exception:
            self._steps = None  # once more from the beginning, when it is repaired
            raise
        return False

    def _read(self) -> Iterator[None]:
        queues = self._store.queues
        halves, ops = queues.find(HALF_TOPIC_BYTES, 0), queues.find(OP_TOPIC_BYTES, 0)
        self.begin, self.ended = 0, set()
        if halves is None:
            return
        self.begin = min(self._committed(halves), halves.max_offset)
        read = 0
        if ops is not None:
            for _, record in self._records(ops, self._committed(ops)):
                self.ended.update(offset for offset in _op_offsets(record) if offset >= self.begin)
                read += 1
                if read % _RECORDS_MAX == 0:
                    yield
        put_again: set[int] = set()
        for offset, record in self._records(halves, self.begin, self.ended):
            if _stands_for(record) in self.ended:
                put_again.add(offset)
            read += 1
            if read % _RECORDS_MAX == 0:
                yield
        self.ended |= put_again

    def _committed(self, queue: UnitQueue) -> int:
        committed = self._store.state.tables.consumer_offset_table.query(TRANS_GROUP, queue.topic_name, 0)
        return max(committed, queue.min_offset)

    def _records(
        self, queue: UnitQueue, offset: int, left_out: Container[int] = ()
    ) -> Iterator[tuple[int, bytes]]:
        end = queue.max_offset
        while offset < end:
            units = queue.units(offset, _RECORDS_MAX)
            if not units:
                return
            for (phy_offset, _, _), at, behind in queue.parse(units, offset):
                reader = self._store.reader
                record = reader.look_message_by_offset(phy_offset) if at not in left_out else None
                if record is not None:
                    yield at, record
                offset = behind


def _op_offsets(record: bytes) -> list[int]:
    try:
        return op_offsets(record)
    except MessageDecodeError:
        return []


def _stands_for(record: bytes) -> int | None:
    try:
        half = half_message(record)
    except MessageDecodeError:
        return None
    return stands_for(half) if half is not None else None
