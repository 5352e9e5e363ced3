"""Members that lose the file of term and vote while they are down, or find it damaged beyond reading.

Such a member has its log, and is another disk from then on: it gets the seat back from the leader, as one does whose
disk is wiped. So it counts like that one among those that may be lost.
"""

from random import Random

from disk.slots import newest_payload
from dledger.log.quorum_state import QUORUM_STATE_FILE_NAME
from simulator.faults.faults import Faults
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop
from simulator.world.sim_member import SimMember

QUORUM_STATE_FAULT_KINDS = ("quorum_state_lost", "quorum_state_damaged")


class QuorumStateFaults:
    def __init__(
        self, loop: EventLoop, members: list[SimMember], options: Options, random: Random, faults: Faults
    ) -> None:
        self._loop = loop
        self._members = members
        self._options = options
        self._random = random
        self._faults = faults

    def start(self) -> None:
        self._faults.recur(self._random, self._options.quorum_state_loss_interval_ms, self._one)

    def _one(self) -> None:
        faults, random = self._faults, self._random
        member, kind = random.choice(self._members), random.choice(QUORUM_STATE_FAULT_KINDS)
        path = f"{member.config.directory}/pydledger/{QUORUM_STATE_FILE_NAME}"
        slots = member.disk.durable(path)
        has_state = slots is not None and newest_payload(slots) is not None
        # One that has nothing to lose yet begins as ever.
        if has_state and faults.may_lose_disk(member) and faults.are_sound_but(member):
            if member.process is not None:
                faults.crash(member)
            member.has_lost = True
            faults.without_vote.append(member)
            lose = member.disk.lose if kind == "quorum_state_lost" else member.disk.zero
            lose(path)
            faults.happened[kind] += 1
            member.trace.add(self._loop.now_us, "fault {} at {}", kind, member.member_id)
