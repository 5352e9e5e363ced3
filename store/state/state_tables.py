"""The replicated tables, one line each. They are applied to and saved as one."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import msgpack

from dledger.entry import Index
from store.errors import StateRecordError
from store.state.table import ConfigFileTable, StateChange, Table
from store.state.tables.access_table import AccessTable
from store.state.tables.audit_table import AuditTable
from store.state.tables.consumer_offset_table import ConsumerOffsetTable
from store.state.tables.delay_offset_table import DelayOffsetTable
from store.state.tables.message_request_mode_table import MessageRequestModeTable
from store.state.tables.pop_table import PopTable
from store.state.tables.resumed_half_table import ResumedHalfTable
from store.state.tables.subscription_group_table import SubscriptionGroupTable
from store.state.tables.timer_table import TimerTable
from store.state.tables.topic_config_table import TopicConfigTable
from store.state.tables.transaction_table import TransactionTable

# The first tables, which have places in a full state. Those after them have names, and are not known to each release.
_FIRST_COUNT: Final = 4
# What ends a state that was written before there were delayed messages, anything forbidden, named tables.
_NOTHING_LATER: Final[tuple[Any, ...]] = ([[0, 0], [], []], [], {})
_packb = partial(msgpack.packb, unicode_errors="surrogateescape")
_unpackb = partial(msgpack.unpackb, strict_map_key=False, unicode_errors="surrogateescape")


class StateTables:
    def __init__(self) -> None:
        self.topic_config_table = TopicConfigTable()
        self.subscription_group_table = SubscriptionGroupTable()
        self.consumer_offset_table = ConsumerOffsetTable()
        self.delay_offset_table = DelayOffsetTable()
        self.timer_table = TimerTable()
        self.transaction_table = TransactionTable()
        self.resumed_half_table = ResumedHalfTable()
        self.pop_table = PopTable(self.consumer_offset_table)
        self.message_request_mode_table = MessageRequestModeTable()
        self.access_table = AccessTable()
        self.audit_table = AuditTable()
        # A new table's line comes here, as the last one.
        self.all: tuple[Table, ...] = tuple(vars(self).values())

    @property
    def in_config_files(self) -> list[ConfigFileTable]:
        return [table for table in self.all if isinstance(table, ConfigFileTable)]

    @property
    def named(self) -> dict[str, Table]:
        """By name, the tables that a member of an earlier release may not know."""
        return {table.name: table for table in self.all[_FIRST_COUNT:]}

    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        """All changes of one record, whose storeTimestamp (ms) is given."""
        classes = {type(change) for change in changes}
        for table in self.all:
            taken = classes.intersection((*table.changes, *table.also_takes))
            if taken:
                table.apply([change for change in changes if type(change) in taken], timestamp)

    def settle(self, applied_index: Index) -> None:
        """Entries up to there are applied, of whatever kind."""
        for table in self.all:
            if table.under_way is not None:
                table.settle(applied_index)

    def term_began(self, no_op_index: Index) -> None:
        for table in self.all:
            table.term_began(no_op_index)

    def pack(self) -> list[Any]:
        """For msgpack; unpack() gives equal tables. A member of an earlier release reads it as long as no table that
        it does not know is used (docs/adr/0009-new-tables-wait-for-all-members.md).
        """
        topics, groups, offsets, delay_offsets = [table.pack() for table in self.all[:_FIRST_COUNT]]
        group_version, group_configs, forbidden = groups
        packed = [*topics, group_version, group_configs, *offsets, delay_offsets, forbidden]
        named = {name: (table.pack(), type(table)().pack()) for name, table in self.named.items()}
        used = {name: _packb(values) for name, (values, unused) in named.items() if values != unused}
        if used:
            packed.append(used)
        return packed

    def unpack(self, values: list[Any]) -> None:
        """Replaces all that the tables hold. Raises StateRecordError; then the tables are of no more use."""
        try:
            topic_version, topics, group_version, groups, offset_version, offsets, *later = values
            delay_offsets, forbidden, named = [*later, *_NOTHING_LATER[len(later) :]]
            self.topic_config_table.unpack([topic_version, topics])
            self.subscription_group_table.unpack([group_version, groups, forbidden])
            self.consumer_offset_table.unpack([offset_version, offsets])
            self.delay_offset_table.unpack(delay_offsets)
            if unknown := named.keys() - self.named.keys():
                raise StateRecordError(
                    f"tables that this program does not know: {', '.join(sorted(unknown))}"
                )
            for name, table in self.named.items():
                packed = named.get(name)
                table.unpack(_unpackb(packed) if packed else type(table)().pack())
        except (ValueError, TypeError, AttributeError, msgpack.UnpackException) as error:
            raise StateRecordError(f"a state of the tables that cannot be read: {error!r}") from error
