"""Which transactions have ended: by the queue offsets of their half messages, in RMQ_SYS_TRANS_HALF_TOPIC, queue 0.

One ends when the message that it becomes is applied: it is committed, or given up. One that is rolled back ends with
the record.
"""

from typing import ClassVar

from store.state.ended_offsets_table import EndedOffsetsTable, EndOffsets


class EndTransactions(EndOffsets, frozen=True):
    kind: ClassVar[int] = 20


class TransactionTable(EndedOffsetsTable):
    name = "transactions"
    changes = (EndTransactions,)
