"""A group of members in memory whose network, disks and time are moved by hand, call by call."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from memory_log import MemoryLog
from msgspec.structs import replace

from dledger.core.member import Member
from dledger.core.member_config import MemberConfig
from dledger.core.membership import CurrentMembers, Membership, Seat, pack_membership
from dledger.core.messages import Message, PeerId, PushRequest
from dledger.core.output import AppendStatus, BeginAnew, Cut, HardState, Output, Role
from dledger.core.refusal import Refusal
from dledger.entry import EntryKind, Index, Term
from dledger.rpc.handshake import WIRE_VERSION_MAX

Trace = Callable[[PeerId, Output], None]


@dataclass
class Node:
    node_id: PeerId
    log: MemoryLog
    hard_state: HardState  # as it is on disk
    disk: bytes = b""  # its uuid
    member: Member | None = None
    saving: HardState | None = None
    cutting: Cut | BeginAnew | None = None
    fatal: str | None = None
    results: list[tuple[object, AppendStatus]] = field(default_factory=list)
    reads: list[tuple[object, Index | Refusal]] = field(default_factory=list)

    @property
    def up(self) -> Member:
        assert self.member is not None, f"{self.node_id} is down"
        return self.member


class CoreGroup:
    def __init__(
        self,
        ids: Sequence[PeerId],
        seed: int = 0,
        trace: Trace | None = None,
        voters: Sequence[PeerId] = (),
        **settings: Any,
    ) -> None:
        """`voters`: with whom the group was formed, if not with all."""
        self.now_ms = 0
        self.random = Random(seed)
        self.settings = settings
        self.ids = tuple(ids)
        self.trace = trace
        self.apart: set[PeerId] = set()  # what they say to others and hear from them is lost
        self.hung: set[PeerId] = set()  # their disks finish nothing in settle()
        self.wire_versions: dict[PeerId, int] = {}  # of those that do not speak the newest
        self.full: set[PeerId] = set()  # their disks have no space for a no-op or a probe
        self.voters = tuple(voters or ids)
        self.nodes = {
            node_id: Node(node_id, MemoryLog(), HardState(0, Term(0), None, False), node_id.encode())
            for node_id in ids
        }
        self.links: dict[tuple[PeerId, PeerId], deque[Message]] = {
            (sender, to): deque() for sender in ids for to in ids if sender != to
        }

    # --- life

    def start(self, node_id: PeerId, *, can_vote: bool = True) -> None:
        node = self.nodes[node_id]
        assert node.member is None, f"{node_id} is up"
        config = MemberConfig(self_id=node_id, peers=self.ids, **self.settings)
        node.log.formed = Membership({voter: Seat(voter.encode()) for voter in self.voters})
        node.member = Member(
            config,
            node.log,
            node.hard_state,
            Random(self.random.random()),
            self.now_ms,
            durable_index=node.log.durable_index,
            can_vote=can_vote,
            members=CurrentMembers(node_id, node.disk, node.log),
        )
        node.saving = node.cutting = node.fatal = None

    def crash(self, node_id: PeerId, *, keep: int = 0) -> None:
        """Loses what is not on disk, but for `keep` entries behind it; messages on their way stay on it."""
        node = self.nodes[node_id]
        node.member = None
        node.log.lose_unsynced(keep)

    # --- events

    def tick(self, node_id: PeerId) -> None:
        self.carry_out(node_id, self.nodes[node_id].up.tick(self.now_ms))

    def deliver(self, sender: PeerId, to: PeerId, at: int = 0) -> None:
        link = self.links[sender, to]
        message = link[at]
        del link[at]
        self.receive(to, message)

    def receive(self, to: PeerId, message: Message) -> None:
        member = self.nodes[to].member
        if member is not None:
            self.carry_out(to, member.step(message, self.now_ms))

    def save(self, node_id: PeerId) -> None:
        node = self.nodes[node_id]
        if node.saving is not None:
            node.hard_state, node.saving = node.saving, None
            self.carry_out(node_id, node.up.hard_state_saved(node.hard_state.sequence, self.now_ms))

    def sync(self, node_id: PeerId) -> None:
        node = self.nodes[node_id]
        node.log.durable_index = node.log.ledger_end_index
        output = node.up.synced(node.log.ledger_end_index, self.now_ms)
        self.carry_out(node_id, output)

    def finish_cut(self, node_id: PeerId) -> None:
        node = self.nodes[node_id]
        if node.cutting is not None:
            node.cutting = None
            self.carry_out(node_id, node.up.cut_done(self.now_ms))

    def append(self, node_id: PeerId, bodies: Sequence[bytes], closure: object | None) -> None:
        node = self.nodes[node_id]
        batch = node.log.append(bodies, node.up.curr_term)
        self.carry_out(node_id, node.up.append(batch, closure, self.now_ms))

    def read(self, node_id: PeerId, closure: object) -> None:
        self.carry_out(node_id, self.nodes[node_id].up.read_index(closure, self.now_ms))

    def change_members(self, node_id: PeerId, wanted: Membership | Refusal) -> Refusal | None:
        if isinstance(wanted, Refusal):
            return wanted
        node = self.nodes[node_id]
        batch = node.log.append([pack_membership(wanted)], node.up.curr_term, EntryKind.MEMBERSHIP)
        self.carry_out(node_id, node.up.append(batch, None, self.now_ms))
        return None

    def wipe(self, node_id: PeerId) -> None:
        """Another, empty disk in the place of the old one."""
        node = self.nodes[node_id]
        assert node.member is None, f"{node_id} is up"
        node.log, node.disk = MemoryLog(), node.disk + b"'"
        node.hard_state = HardState(0, Term(0), None, True)

    def connect(self, a: PeerId, b: PeerId) -> None:
        for node_id, peer in ((a, b), (b, a)):
            if (member := self.nodes[node_id].member) is not None:
                version = min(self.wire_versions.get(each, WIRE_VERSION_MAX) for each in (a, b))
                self.carry_out(node_id, member.peer_shown(peer, self.nodes[peer].disk, version, self.now_ms))
                self.carry_out(node_id, member.peer_connected(peer, self.now_ms))

    def disconnect(self, a: PeerId, b: PeerId) -> None:
        for node_id, peer in ((a, b), (b, a)):
            self.links[node_id, peer].clear()
            if (member := self.nodes[node_id].member) is not None:
                self.carry_out(node_id, member.peer_disconnected(peer, self.now_ms))

    # --- carrying out

    def carry_out(self, node_id: PeerId, output: Output) -> None:
        node = self.nodes[node_id]
        if self.trace is not None:
            self.trace(node_id, output)
        if output.hard_state is not None:
            assert node.saving is None, "one hard state at a time"
            node.saving = output.hard_state
        if output.cut is not None:
            assert node.cutting is None, "one cut at a time"
            node.cutting = output.cut
            node.log.carry_out(output.cut)
        for pushed in output.appends:
            assert node.cutting is None, "no append while a cut is under way"
            node.log.append_range(pushed.payload, pushed.skip)
        for envelope in output.messages:
            if self.apart & {node_id, envelope.to}:
                continue
            self.links[node_id, envelope.to].append(self._on_the_wire(node, envelope.message))
        node.results += [(completion.closure, completion.status) for completion in output.completions]
        node.reads += [(completion.closure, completion.outcome) for completion in output.read_completions]
        if output.fatal is not None:
            node.fatal = output.fatal
        if output.probe_wanted:
            self.carry_out(node_id, node.up.write_failed_no_space(node_id in self.full, self.now_ms))
        if output.membership_wanted is not None and node.up.changes.refusal() is None:
            self.change_members(node_id, output.membership_wanted)
        if output.no_op_wanted and node_id in self.full:
            self.carry_out(node_id, node.up.write_failed_no_space(True, self.now_ms))
        elif output.no_op_wanted:
            assert node.cutting is None, "no append while a cut is under way"
            batch = node.log.append([b"no-op"], node.up.curr_term, EntryKind.NO_OP)
            self.carry_out(node_id, node.up.append(batch, None, self.now_ms))

    @staticmethod
    def _on_the_wire(node: Node, message: Message) -> Message:
        if isinstance(message, PushRequest) and message.entries is not None:
            return replace(message, entries=None, payload=node.log.payload(message.entries))
        return message

    # --- many events

    def settle(self, rounds_max: int = 200) -> None:
        """Deliver, save, sync and finish cuts until nothing is left to do; time stands still."""
        for _ in range(rounds_max):
            quiet = True
            for node_id, node in self.nodes.items():
                if node.member is None or node_id in self.hung:
                    continue
                if node.saving is not None:
                    quiet = False
                    self.save(node_id)
                if node.cutting is not None:
                    quiet = False
                    self.finish_cut(node_id)
                if node.member.durable_index < node.log.ledger_end_index and not node.member.stopped:
                    quiet = False
                    self.sync(node_id)
            for (sender, to), link in self.links.items():
                for _ in range(len(link)):
                    quiet = False
                    self.deliver(sender, to)
            if quiet:
                return
        raise AssertionError(f"not settled after {rounds_max} rounds")

    def run(self, ms: int) -> None:
        """Let time pass in ticks of 10 ms, everything else being immediate."""
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms += 10
            for node_id, node in self.nodes.items():
                if node.member is not None:
                    self.tick(node_id)
            self.settle()

    def run_until(self, condition: Callable[[], bool], ms_max: int = 10_000) -> int:
        """Milliseconds that it took."""
        start_ms = self.now_ms
        while not condition():
            assert self.now_ms - start_ms < ms_max, f"not within {ms_max} ms"
            self.run(10)
        return self.now_ms - start_ms

    def leader(self) -> PeerId | None:
        """The one ready leader; the highest term counts when an older one has not noticed yet."""
        ready = [
            (node.member.curr_term, node_id)
            for node_id, node in self.nodes.items()
            if node.member is not None and node.member.role is Role.LEADER and node.member.leader_ready
        ]
        return max(ready)[1] if ready else None

    def committed(self) -> dict[PeerId, Index]:
        return {
            node_id: node.member.committed_index
            for node_id, node in self.nodes.items()
            if node.member is not None
        }
