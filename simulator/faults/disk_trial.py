"""The end of some runs: in a group at rest, with nothing else in the way, the leader's disk fills, and later hangs.

Somebody else must lead soon each time, and the old leader must come back by itself.
"""

from collections.abc import Callable

from dledger.config import FlushMode
from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.invariants.invariant import ViolationError
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember
from simulator.world.workload import Workload

# Heartbeats, probes and their answers, then a transfer, or several if what it needs is lost on the way.
_GIVE_WAY_US = 10_000_000
_HANG_US = 12_000_000
_PUT_INTERVAL_US = 20_000


class DiskTrial:
    def __init__(
        self,
        loop: EventLoop,
        members: list[SimMember],
        workload: Workload,
        options: Options,
        faults: Faults,
    ) -> None:
        self._loop = loop
        self._members = members
        self._workload = workload
        self._options = options
        self._faults = faults
        self._puts = False

    def run(self) -> None:
        """Raises ViolationError."""
        self._puts = True
        self._put()
        full = self._leader()
        full.disk.is_full = True
        self._wait(
            lambda: self._leader_but(full) and full.disk.refused_for_space > 0,
            "no other member leads, although its leader's disk is full",
        )
        full.disk.is_full = False
        self._faults.happened["full_leader"] += 1
        if self._options.flush_mode is FlushMode.SYNC_FLUSH:
            hung = self._leader()
            hung.disk.hangs_until_us = self._loop.now_us + _HANG_US
            self._wait(
                lambda: self._leader_but(hung), "no other member leads, although its leader's disk hangs"
            )
            hung.disk.hangs_until_us = 0
            self._faults.happened["hung_leader"] += 1
        self._puts = False

    def _put(self) -> None:
        if self._puts:
            for member in self._members:
                if member.process is not None and member.process.store.serving:
                    self._workload.put(member, 1)
            self._loop.call_later(_PUT_INTERVAL_US, self._put)

    def _leader(self) -> SimMember:
        serving: list[SimMember] = []

        def is_one() -> bool:
            serving[:] = [
                member
                for member in self._members
                if member.process is not None and member.process.store.serving
            ]
            return len(serving) == 1

        self._wait(is_one, "nobody leads")
        return serving[0]

    def _leader_but(self, member: SimMember) -> bool:
        return any(
            other.process is not None and other.process.store.serving
            for other in self._members
            if other is not member
        )

    def _wait(self, is_done: Callable[[], bool], complaint: str) -> None:
        if not self._loop.run_until(self._loop.now_us + _GIVE_WAY_US, is_done):
            raise ViolationError(
                "leader_has_a_disk", f"after {_GIVE_WAY_US // 1_000} ms {complaint}", is_liveness=True
            )
