"""What only the leader does, as the store drives it: delayed messages, timer messages, transactions, expired pops.

Every member makes all of its services, so that a new leader has them; only the one of a serving leader is ticked. A
service appends through the commit log, and what it remembers beside the log is how far it has read, no more: where it
stands is a replicated table, so that a new leader goes on exactly where the log ends.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from disk.disk import Disk
from dledger.core.messages import PeerId
from dledger.entry import Index
from store.dledger_commit_log import DLedgerCommitLog
from store.message_reader import MessageReader
from store.queues.consume_queue_store import ConsumeQueueStore
from store.queues.unit_queue import UnitQueue
from store.retention import LogRetention
from store.state.state_machine import StateMachine
from store.store_config import StoreConfig
from store.store_runtime import LoopRuntime

if TYPE_CHECKING:
    from store.services.deliveries import Deliveries


class LeaderStore(msgspec.Struct, frozen=True):
    """What services work with."""

    config: StoreConfig
    disk: Disk
    runtime: LoopRuntime
    queues: ConsumeQueueStore
    reader: MessageReader
    commit_log: DLedgerCommitLog
    state: StateMachine
    # Has the unit of a topic, queue id and queue offset written anew.
    mend: Callable[[bytes, int, int], None]
    # Whether the deletion of a topic is on its way into the log: what is appended now must not come behind it.
    deletes_topics: Callable[[], bool]
    # The other members that do not know a table, by its name: nothing of it may be appended yet.
    members_without: Callable[[str], Sequence[PeerId]]
    retention: LogRetention

    def refusal_of_outdated(self, table_name: str, what: str) -> str | None:
        """Why a table cannot be used yet, in words for senders of `what`, which need it. None: it can."""
        outdated = self.members_without(table_name)
        if not outdated:
            return None
        return (
            f"{what} are not there yet: {', '.join(outdated)} of the group run a release without them, or were not "
            "seen since this leader's start; upgrade them, or remove them from the group"
        )


class LeaderService(Protocol):
    # What it has on its way into the log: applied() is called once that is applied.
    deliveries: "Deliveries"

    @property
    def due_ms(self) -> int | None:
        """When tick() has something to do, as of its last look. None: not before something is applied."""
        ...

    def serving_changed(self) -> None:
        """This member has begun to serve, or ceased to. What was under way shows when it is applied, or never was."""
        ...

    def catch_up(self, now_ms: int) -> None:
        """On each member, before a tick: takes notice of some of what has been applied. Raises what tick() raises."""
        ...

    def tick(self, now_ms: int) -> None:
        """At a serving leader: appends what is due. Raises UnitDamagedError, MessageDamagedError: then it goes on when
        that is repaired. StoreDamagedError, DiskError.
        """
        ...

    def applied(self, applied_index: Index, now_ms: int) -> None:
        """Entries up to there are applied, and the tables are settled. Raises what tick() raises."""
        ...

    def first_waiting_pos(self) -> int | None:
        """Physical offset of the first message that it still needs, on any member: retention keeps it, and what comes
        after it. None: it needs none. Raises UnitDamagedError, DiskError.
        """
        ...

    def units_mended(self, queue: UnitQueue) -> None:
        """Of this queue: what was read of them before may be wrong."""
        ...
