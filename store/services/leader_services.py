"""All leader services there are. A new one is a file beside this one, and a line here."""

from dledger.entry import Index
from store.errors import MessageDamagedError, UnitDamagedError
from store.queues.unit_queue import UnitQueue
from store.services.leader_service import LeaderService, LeaderStore
from store.services.pop_revive_service import PopReviveService
from store.services.resume_check_service import ResumeCheckService
from store.services.schedule_message_service import ScheduleMessageService
from store.services.timer_message_service import TimerMessageService
from store.services.transaction_service import TransactionService


class LeaderServices:
    """All of them as one. What a service finds damaged costs the others nothing: it goes on when that is repaired. The
    `try` of each step is free of cost, which suppress() is not.
    """

    def __init__(self, store: LeaderStore) -> None:
        self.schedule_message_service = ScheduleMessageService(store)
        self.timer_message_service = TimerMessageService(store)
        self.transaction_service = TransactionService(store)
        self.resume_check_service = ResumeCheckService(store)
        self.pop_revive_service = PopReviveService(store)
        self.all: tuple[LeaderService, ...] = tuple(vars(self).values())

    @property
    def awaited_index(self) -> Index | None:
        """Of the last entry that one of them has on its way: messages that go to their topics."""
        awaited = [service.deliveries.awaited_index for service in self.all]
        return max((index for index in awaited if index is not None), default=None)

    @property
    def due_ms(self) -> int | None:
        due = [service.due_ms for service in self.all]
        return min((due_ms for due_ms in due if due_ms is not None), default=None)

    @property
    def is_behind(self) -> bool:
        """Whether catch_up() has left something to be done, and is to be called again soon."""
        return self.timer_message_service.is_behind

    def serving_changed(self) -> None:
        for service in self.all:
            service.serving_changed()

    def catch_up(self, now_ms: int) -> None:
        for service in self.all:
            try:
                service.catch_up(now_ms)
            except (MessageDamagedError, UnitDamagedError):
                continue

    def tick(self, now_ms: int) -> None:
        for service in self.all:
            try:
                service.tick(now_ms)
            except (MessageDamagedError, UnitDamagedError):
                continue

    def applied(self, applied_index: Index, now_ms: int) -> None:
        for service in self.all:
            awaited_index = service.deliveries.awaited_index
            if awaited_index is not None and awaited_index <= applied_index:
                try:
                    service.applied(applied_index, now_ms)
                except (MessageDamagedError, UnitDamagedError):
                    continue

    def first_waiting_pos(self) -> int | None:
        """Of all that one of them still needs. Raises UnitDamagedError, DiskError."""
        positions = [service.first_waiting_pos() for service in self.all]
        return min((pos for pos in positions if pos is not None), default=None)

    def units_mended(self, queue: UnitQueue) -> None:
        for service in self.all:
            service.units_mended(queue)
