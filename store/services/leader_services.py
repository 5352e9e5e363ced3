"""All leader services there are. A new one is a file beside this one, and a line here."""

from store.services.leader_service import LeaderService, LeaderStore
from store.services.schedule_message_service import ScheduleMessageService


def make_leader_services(store: LeaderStore) -> list[LeaderService]:
    return [ScheduleMessageService(store)]
