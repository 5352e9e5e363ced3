"""What goes wrong in the first phase of a run: one fault after the other, chosen by the seed, some of them overlapping.

Each kind counts itself only when it has really happened: a seed is worth what its faults were.
"""

from collections import Counter
from collections.abc import Callable
from random import Random

from dledger.config import FlushMode
from dledger.core.output import Role
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember
from simulator.world.sim_network import SimNetwork

# A crash point lies within so many disk operations from now.
_CRASH_POINT_MAX = 60
# A disk that hangs does so for about the time after which a leader falls silent (MemberConfig.stalled_sync_ms).
_HUNG_US = 7_000_000
# How many faults are left out while nobody can lead.
_PATIENCE = 0.9


class Faults:
    """Invariant: a member that does not run is started again, at the latest by heal()."""

    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        network: SimNetwork,
        options: Options,
        random: Random,
        absence_random: Random,
    ) -> None:
        self.happened: Counter[str] = Counter()
        self.crashes_with_loss = 0
        self.bytes_lost = 0
        self.is_healed = False
        # Who counts for no vote: has lost term and vote, and got no seat since, or the synced mark, and is doubted.
        self.without_vote: list[SimMember] = []
        self.gone: set[str] = set()  # ids of members whose hosts are gone for good
        self._loop = loop
        self._members = members
        self._network = network
        self._options = options
        self._random = random
        self._absence_random = absence_random
        self._makers: dict[str, Callable[[SimMember], bool]] = {
            "crash": self.crash,
            "crash_point": self.crash_point,
            "power_loss": self.power_loss,
            "power_loss_of_all": self._power_loss_of_all,
            "clean_stop": self._clean_stop,
            "pause": self.pause,
            "partition": self._partition,
            "one_way": self._one_way,
            "isolate_leader": self.isolate_leader,
            "close_connection": self._close_connection,
            "slow_disk": self._slow_disk,
            "hung_disk": self._hung_disk,
            "full_disk": self._full_disk,
            "failed_sync": self._failed_sync,
            "wiped_disk": self._wiped_disk,
        }

    def start(self) -> None:
        self._next()
        if self._options.long_absence_ms_max:
            self._next_absence()

    def recur(self, random: Random, interval_ms: int, step: Callable[[], None]) -> None:
        """Does `step` again and again until heal(), on average every `interval_ms`; never if that is 0."""

        def wait() -> None:
            self._loop.call_later(int(random.expovariate(1 / (interval_ms * 1_000))) + 1, due)

        def due() -> None:
            if not self.is_healed:
                step()
                wait()

        if interval_ms:
            wait()

    def _next_absence(self) -> None:
        """One after the other, beside all other faults."""
        if self.is_healed:
            return
        random = self._absence_random
        member = random.choice(self._members)
        back_us = random.randint(1, self._options.long_absence_ms_max) * 1_000
        if self.crash_until(member, back_us):
            self.happened["long_absence"] += 1
        self._loop.call_later(back_us + random.randint(1, 2_000_000), self._next_absence)

    def _next(self) -> None:
        if self.is_healed:
            return
        random, options = self._random, self._options
        self._loop.call_later(
            int(random.expovariate(1 / (options.fault_interval_ms * 1_000))) + 1, self._next
        )
        kinds = list(options.faults)
        (kind,) = random.choices(kinds, [options.faults[kind] for kind in kinds])
        if self.is_majority_away() and random.random() < _PATIENCE:
            return
        # Half of all faults meet the leader: it has the most to lose.
        leaders = [
            member for member in self._members if member.process is not None and member.process.store.serving
        ]
        member = random.choice(leaders if leaders and random.random() < 0.5 else self._members)
        if self._makers[kind](member):
            self.happened[kind] += 1
            member.trace.add(self._loop.now_us, "fault {} at {}", kind, member.member_id)

    def is_majority_away(self) -> bool:
        """A group that cannot lead learns little from one more fault."""
        away = sum(member.process is None or member.is_paused for member in self._members)
        return away > (len(self._members) - 1) // 2

    def heal(self) -> None:
        """From here on nothing hinders the group."""
        self.is_healed = True
        self._network.is_healed = True
        for path in self._network.paths.values():
            path.is_blocked = False
        for member in self._members:
            self._heal_disk(member)
            if member.is_paused:
                member.resume()
            self.restart(member)

    # -- processes and power -----------------------------------------------------------------------------------

    def crash(self, member: SimMember) -> bool:
        if member.process is None:
            return False
        member.end_process()
        self.restart_later(member)
        return True

    def crash_until(self, member: SimMember, back_us: int) -> bool:
        if member.process is None:
            return False
        member.end_process()
        self._loop.call_later(back_us, self.restart, member)
        return True

    def crash_point(self, member: SimMember) -> bool:
        """Killed at some disk operation, maybe in the recovery of its next life."""
        member.disk.crash_after = self._random.randrange(_CRASH_POINT_MAX)
        return False  # counted when it is reached

    def crash_point_reached(self, member: SimMember, *, in_recovery: bool) -> None:
        self.happened["recovery_crash" if in_recovery else "crash_point"] += 1
        if self._random.random() < 0.5 and self.may_lose(member):
            self.lose_power(member)
        self.restart_later(member)

    def power_loss(self, member: SimMember) -> bool:
        if not self.may_lose(member):
            return False
        self.lose_power(member)
        self.restart_later(member)
        return True

    def _power_loss_of_all(self, member: SimMember) -> bool:
        """Under ASYNC_FLUSH that is documented loss."""
        if self._options.flush_mode is FlushMode.ASYNC_FLUSH or not all(map(self.may_lose, self._members)):
            return False
        for each in self._members:
            self.lose_power(each)
            self.restart_later(each)
        return True

    def lose_power(self, member: SimMember) -> None:
        had_process = member.process is not None
        lost = member.lose_power()
        if lost:
            self.crashes_with_loss += 1
            self.bytes_lost += lost
        if self._options.flush_mode is FlushMode.ASYNC_FLUSH and (lost or had_process):
            member.has_lost = True

    def may_lose(self, member: SimMember) -> bool:
        """A minority may lose what it has acknowledged: entire disks, or under ASYNC_FLUSH the page cache."""
        if self._options.flush_mode is FlushMode.SYNC_FLUSH:
            return self._have_votes_but(member)
        return self._is_minority_lost_with(member)

    def _have_votes_but(self, member: SimMember) -> bool:
        """Else a power loss may make a second member doubted (quorum_state_faults.py)."""
        self.without_vote = [other for other in self.without_vote if other.has_lost]
        return all(other is member for other in self.without_vote)

    def _is_minority_lost_with(self, member: SimMember) -> bool:
        """Whichever voters will turn out to be those that count. Not while a log may name some that nobody saw."""
        if any(other.fell_unseen for other in self._members):
            return False
        ids = tuple(other.member_id for other in self._members)
        known = {other.voters or ids for other in self._members}
        lost = {other.member_id for other in self._members if other.has_lost or other.is_damaged}
        lost |= {member.member_id, *self.gone}
        return all(len(lost & set(voters)) <= (len(voters) - 1) // 2 for voters in known)

    def _clean_stop(self, member: SimMember) -> bool:
        process = member.process
        if process is None or process.is_leaving or member.is_paused:
            return False
        member.call(process.stop)
        self.restart_later(member)
        return True

    def pause(self, member: SimMember) -> bool:
        if member.process is None or member.is_paused:
            return False
        process = member.process
        member.pause()

        def resume() -> None:
            if member.process is process and member.is_paused:
                member.resume()

        self._loop.call_later(self._draw_duration_us(), resume)
        return True

    def restart_later(self, member: SimMember) -> None:
        self._loop.call_later(self._draw_duration_us(), self.restart, member)

    def restart(self, member: SimMember) -> None:
        if member.member_id in self.gone or (member.process is not None and not member.process.is_leaving):
            return
        if member.process is not None:
            self._loop.call_later(10_000, self.restart, member)  # its clean stop is under way
            return
        member.start()

    # -- network -----------------------------------------------------------------------------------------------

    def _partition(self, member: SimMember) -> bool:
        """Two groups that do not hear each other."""
        ids = [other.member_id for other in self._members]
        one_side = set(self._random.sample(ids, self._random.randint(1, len(ids) - 1)))
        return self.block(
            [pair for pair in self._network.paths if (pair[0] in one_side) != (pair[1] in one_side)]
        )

    def _one_way(self, member: SimMember) -> bool:
        pairs = sorted(self._network.paths)
        return self.block(self._random.sample(pairs, self._random.randint(1, len(pairs) // 2)))

    def isolate_leader(self, member: SimMember) -> bool:
        process = member.process
        if process is None or process.replica.member.role is not Role.LEADER:
            return False
        member_id = member.member_id
        outgoing, incoming = self._random.choice(((True, True), (True, False), (False, True)))
        return self.block(
            [
                pair
                for pair in self._network.paths
                if (outgoing and pair[0] == member_id) or (incoming and pair[1] == member_id)
            ]
        )

    def block(self, pairs: list[tuple[str, str]], *, notice: float = 0.5) -> bool:
        """For a while. `notice`: how probably the kernel, or a proxy, closes the connections over these paths."""
        paths = [self._network.paths[pair] for pair in pairs if not self._network.paths[pair].is_blocked]
        if self._random.random() < notice:
            for pair in pairs:
                self._network.close(*pair)
        for path in paths:
            path.is_blocked = True

        def unblock() -> None:
            for path in paths:
                path.is_blocked = False

        self._loop.call_later(self._draw_duration_us(), unblock)
        return bool(paths)

    def _close_connection(self, member: SimMember) -> bool:
        up = sorted(self._network.up)
        if not up:
            return False
        self._network.close(*self._random.choice(up))
        return True

    # -- disks -------------------------------------------------------------------------------------------------

    def _slow_disk(self, member: SimMember) -> bool:
        member.sync_slowdown = self._random.choice((5, 20))
        self._loop.call_later(self._draw_duration_us(), self._end_disk_fault, member)
        return True

    def _hung_disk(self, member: SimMember) -> bool:
        """One sync hangs; what comes behind it in its job waits."""
        member.sync_hang_us = _HUNG_US
        return True

    def _full_disk(self, member: SimMember) -> bool:
        member.disk.is_full = True
        member.may_fail = True
        self._loop.call_later(self._draw_duration_us(), self._end_disk_fault, member)
        return True

    def _failed_sync(self, member: SimMember) -> bool:
        """The process ends by it; what it had written is read back and yet not on the disk."""
        if member.process is None:
            return False
        member.disk.failing_syncs = 1
        member.may_fail = True
        return True

    def may_damage(self, member: SimMember) -> bool:
        """Whether enough sound copies are left of what is damaged there."""
        return self._is_minority_lost_with(member)

    def are_sound_but(self, member: SimMember) -> bool:
        """A member without a vote, or in doubt, may hold what nobody else does, and does not campaign: of three, one
        more that is doubted would leave nobody who can lead.
        """
        processes = [other.process for other in self._members if other is not member]
        return all(
            process is not None and process.replica.member.has_seat and not process.replica.member.doubted
            for process in processes
        )

    def may_lose_disk(self, member: SimMember) -> bool:
        """As may_damage(). Nor has anybody seen that disk who is still to form its group: it would be another one than
        of those who see the next disk in its place, and one of the two stays alone (docs/reliability.md).
        """
        others = [
            other.process for other in self._members if other is not member and other.process is not None
        ]
        formations = [process.replica.formation for process in others]
        is_awaited = [
            member.member_id in formation.waits_for for formation in formations if not formation.is_formed
        ]
        return all(is_awaited) and self._is_minority_lost_with(member)

    def _wiped_disk(self, member: SimMember) -> bool:
        if not self.may_lose_disk(member):
            return False
        if member.process is not None:
            member.end_process()
        member.wipe()
        member.has_lost = True
        self.restart_later(member)
        return True

    def _end_disk_fault(self, member: SimMember) -> None:
        """Unless heal() has: what is wrong with the disk by then is a trial's."""
        if not self.is_healed:
            self._heal_disk(member)

    def _heal_disk(self, member: SimMember) -> None:
        member.sync_slowdown = 1
        member.disk.is_full = False
        if self.is_healed:
            member.sync_hang_us = 0
            member.disk.failing_syncs = member.disk.failing_log_syncs = member.disk.failing_writes = 0
            member.disk.hangs_until_us = 0
            member.disk.crash_after = None

    def _draw_duration_us(self) -> int:
        return self._random.randint(1, self._options.fault_duration_ms_max) * 1_000
