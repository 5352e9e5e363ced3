"""Administrators that make, change and delete users and policies, at whoever they take for the leader, and note what
they were told. What is to follow from that is in simulator/harness/access_log.py.
"""

from functools import partial
from random import Random
from typing import Final

from auth.policy import PolicyEntry, PolicyType, make_entry
from auth.user import UserStatus, UserType
from simulator.harness.access_log import PASSWORDS, RESOURCE_NAMES, USERNAMES, AccessLog
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.process import Process
from simulator.world.sim_member import SimMember
from store.state.state_proposals import ProposeStatus
from store.state.state_record import pack_change
from store.state.table import StateChange
from store.state.tables.access_table import DeletePolicyEntries, DeleteUser, PutPolicyEntries, PutUser

_AT_ONCE_MAX: Final = 3
_RESOURCES: Final = (
    "*",
    *(f"{kind}:{name}" for kind in ("Topic", "Group") for name in (*RESOURCE_NAMES, "orders*", "*")),
)
_ACTIONS: Final = (["Pub"], ["Sub"], ["Pub", "Sub"], ["All"])
_SOURCES: Final[tuple[list[str], ...]] = ([], [], ["10.0.0.0/16"], ["10.1.0.1"])


class AccessChanges:
    def __init__(
        self, loop: EventLoop, members: list[SimMember], log: AccessLog, options: Options, random: Random
    ) -> None:
        self.is_running = True
        self.applied_count = 0  # as administrators were told
        self.taken_count = 0  # those with them that were not refused at once
        self._loop = loop
        self._members = members
        self._log = log
        self._options = options
        self._random = random

    @property
    def cut_count(self) -> int:
        """Of changes that were in the middle of it when their leader fell, or ceased to lead."""
        return self.taken_count - self.applied_count

    def start(self) -> None:
        if self._options.access_interval_us:
            self._loop.call_later(0, self._act)

    def _act(self) -> None:
        if not self.is_running:
            return
        random = self._random
        self._loop.call_later(int(random.expovariate(1 / self._options.access_interval_us)) + 1, self._act)
        serving = [
            member
            for member in self._members
            if member.process is not None and not member.is_paused and member.process.store.serving
        ]
        member = random.choice(serving if serving and random.random() < 0.95 else self._members)
        changes = [self._change() for _ in range(random.randint(1, _AT_ONCE_MAX))]
        if member.process is not None and not member.process.is_stopping:
            member.call(self._propose, member, member.process, changes)

    def _propose(self, member: SimMember, process: Process, changes: list[StateChange]) -> None:
        for change in changes:
            self.taken_count += 1
            process.store.propose(change, partial(self._told, process, change), member.now_ms())

    def _told(self, process: Process, change: StateChange, status: ProposeStatus) -> None:
        host = process.host
        host.trace.add(self._loop.now_us, "{} access {} {}", host.member_id, change, status.name)
        if status is ProposeStatus.APPLIED:
            self.applied_count += 1
            self._log.told(pack_change(change), process.store.reads.applied_index)
        elif status is not ProposeStatus.UNKNOWN:
            self.taken_count -= 1

    # -- changes -----------------------------------------------------------------------------------------------

    def _change(self) -> StateChange:
        random = self._random
        username, policy_type = random.choice(USERNAMES), random.choice(tuple(PolicyType))
        dice = random.random()
        if dice < 0.35:
            return self._new_user(username)
        if dice < 0.5:
            return PutUser(username, *self._one_of_a_user())
        if dice < 0.6:
            return DeleteUser(username)
        if dice < 0.9:
            entries = tuple(self._entry() for _ in range(random.randint(1, 3)))
            return PutPolicyEntries(username, policy_type, entries)
        return DeletePolicyEntries(username, policy_type, random.choice((None, *_RESOURCES)))

    def _new_user(self, username: str) -> PutUser:
        random = self._random
        return PutUser(
            username,
            random.choice(PASSWORDS),
            UserType.SUPER if random.random() < 0.1 else UserType.NORMAL,
            UserStatus.DISABLE if random.random() < 0.2 else UserStatus.ENABLE,
        )

    def _one_of_a_user(self) -> tuple[str | None, UserType | None, UserStatus | None]:
        """What is to become of a user's password, type and status: one of them changes."""
        random = self._random
        said: tuple[tuple[str | None, UserType | None, UserStatus | None], ...] = (
            (random.choice(PASSWORDS), None, None),
            (None, random.choice(tuple(UserType)), None),
            (None, None, random.choice(tuple(UserStatus))),
        )
        return random.choice(said)

    def _entry(self) -> PolicyEntry:
        random = self._random
        return make_entry(
            random.choice(_RESOURCES),
            random.choice(_ACTIONS),
            random.choice(_SOURCES),
            random.choice(("Allow", "Allow", "Deny")),
        )
