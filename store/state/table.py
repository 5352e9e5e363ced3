"""What a replicated table is: a part of the broker's state that changes by state entries of the log alone.

Everything in a table is a function of the log: two members that have applied the same entries hold equal tables,
timestamps included. A new table is one file in store/state/tables/ and one line in state_tables.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import msgspec

from dledger.entry import Index
from store.state.table_configs import DataVersion


class StateChange(msgspec.Struct, frozen=True):
    """One change of a table. A record has [kind, the fields in their order].

    A later version may add a field at the end, with a default; members that do not know it stop at such a record.
    """

    kind: ClassVar[int]  # its number in records, which no other change ever gets

    def pack(self) -> list[Any]:
        """The fields, for msgpack."""
        return [getattr(self, name) for name in self.__struct_fields__]

    @classmethod
    def unpack(cls, values: list[Any]) -> Self:
        """Raises ValueError, TypeError."""
        make: Callable[..., Self] = cls
        return make(*values)


class Table(ABC):
    """Invariant: until a change of its own is applied, which makes its data version the next one, pack() gives what it
    gives of a new table. So a table that nobody uses yet leaves no trace in what members write, and members of an
    earlier release can read that.
    """

    name: ClassVar[str]  # in full states and in reports; never changes
    changes: ClassVar[tuple[type[StateChange], ...]]  # its own
    also_takes: ClassVar[
        tuple[type[StateChange], ...]
    ] = ()  # changes of other tables that change this one, too

    # A change that names messages behind it in the log, until they are applied: settle() counts them.
    under_way: StateChange | None = None

    def __init__(self) -> None:
        self.data_version = DataVersion()

    @property
    def is_used(self) -> bool:
        """Whether a change of its own was ever applied. From then on all members of the group know the table."""
        return self.data_version.counter > 0

    @abstractmethod
    def rows(self) -> Mapping[Any, Any]:
        """Copies what it holds, by key, to be compared with the rows of another member's table."""

    @abstractmethod
    def apply(self, changes: Sequence[StateChange], timestamp: int) -> None:
        """Those of one record that it takes, in their order. `timestamp`: the record's storeTimestamp, ms."""

    @abstractmethod
    def pack(self) -> list[Any]:
        """All that it holds, for msgpack; unpack() gives an equal table."""

    @abstractmethod
    def unpack(self, values: list[Any]) -> None:
        """Replaces all that it holds. Raises ValueError, TypeError."""

    def settle(self, applied_index: Index) -> None:  # noqa: B027  # most tables have nothing under way
        """Takes notice that all entries up to there are applied, of whatever kind."""

    def term_began(self, no_op_index: Index) -> None:  # noqa: B027  # likewise
        """Takes notice of the no-op of another term: what is behind it is not the former leader's."""


class ConfigFileTable(Table):
    """A table that RocketMQ keeps in a file under config/: it is exported there, and read where Java wrote it last."""

    config_file: ClassVar[str]

    @abstractmethod
    def export(self) -> Callable[[], dict[str, object]]:
        """Copies what the file is to say. The function makes JSON of the copy, in the thread of a job."""

    @abstractmethod
    def read_config(self, content: Mapping[Any, Any]) -> None:
        """Takes what a file says, but for its dataVersion. Raises ValueError."""
