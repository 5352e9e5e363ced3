"""What RocketMQ has left of transactions in a store: which halves have ended, as its own check would find it.

It reads op records and halves from the offsets on that CID_RMQ_SYS_TRANS has committed. A half that was put again while
nobody was to be asked about it says where it was before; if that has ended, so has this one.
"""

from message.errors import MessageDecodeError
from message.names import TRANS_GROUP
from store.queues.unit_queue import UnitQueue
from store.services.deliveries import Deliveries
from store.services.half_message import HALF_TOPIC_BYTES, OP_TOPIC_BYTES, half_message, op_offsets, stands_for
from store.services.leader_service import LeaderStore
from store.services.take_over import Reading, TakeOver
from store.state.offset_ranges import OffsetRanges
from store.state.tables.transaction_table import EndTransactions


class RocketMQTransactions(TakeOver):
    def __init__(self, store: LeaderStore, deliveries: Deliveries) -> None:
        super().__init__(store, deliveries, store.state.tables.transaction_table, EndTransactions)
        self._is_nothing = False

    @property
    def is_done(self) -> bool:
        return self._is_nothing or super().is_done

    def _read(self) -> Reading:
        queues = self._store.queues
        halves, ops = queues.find(HALF_TOPIC_BYTES, 0), queues.find(OP_TOPIC_BYTES, 0)
        begin = min(self._committed(halves), halves.max_offset) if halves is not None else 0
        ended: set[int] = set()
        if halves is not None and ops is not None:
            for _, record in self._records(ops, self._committed(ops)):
                ended.update(offset for offset in _op_offsets(record) if offset >= begin)
                yield
        put_again: set[int] = set()
        if halves is not None:
            for offset, record in self._records(halves, begin, ended):
                half = half_message(record)
                if half is not None and stands_for(half) in ended:
                    put_again.add(offset)
                yield
        ended |= put_again
        self._is_nothing = not begin and not ended
        return begin, OffsetRanges.of(sorted(ended))

    def _committed(self, queue: UnitQueue) -> int:
        committed = self._store.state.tables.consumer_offset_table.query(TRANS_GROUP, queue.topic_name, 0)
        return max(committed, queue.min_offset)


def _op_offsets(record: bytes) -> list[int]:
    try:
        return op_offsets(record)
    except MessageDecodeError:
        return []
