"""Random histories of a group, and what must hold after each of their events."""

from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from core_group import CoreGroup, Node
from msgspec.structs import replace

from dledger.core.messages import PeerId, VoteResponse, VoteResult
from dledger.core.output import AppendStatus, BeginAnew, Cut, Output, Role
from dledger.core.refusal import Refusal
from dledger.entry import Index, Term, parse_header


@dataclass
class Counts:
    """What a history had in it: a history without faults proves nothing."""

    elections: int = 0
    cuts: int = 0
    crashes: int = 0
    losses: int = 0  # crashes that took acknowledged entries with them
    acknowledged: int = 0
    unknown: int = 0
    deletions: int = 0
    begins_anew: int = 0
    reads: int = 0  # that were told how far to reach
    reads_refused: int = 0
    let_go: int = 0  # leaders that let go of what they cannot give
    added: int = 0  # members, as learners first
    removed: int = 0
    wiped: int = 0  # disks


@dataclass
class Judge:
    """Election safety, log matching, leader completeness and state machine safety (Raft, figure 3)."""

    group: CoreGroup
    leaders: dict[Term, PeerId] = field(default_factory=dict)
    committed: list[bytes] = field(default_factory=list)  # entries, as first seen committed
    counts: Counts = field(default_factory=Counts)
    open_reads: set[int] = field(default_factory=set)  # by number

    def on_output(self, node_id: PeerId, output: Output) -> None:
        node = self.group.nodes[node_id]
        assert output.fatal is None, output.fatal
        change = output.role_change
        if change is not None and change.role is Role.LEADER:
            known = self.leaders.setdefault(change.term, node_id)
            assert known == node_id, f"{known} and {node_id} both lead term {change.term}"
            self.counts.elections += 1
            self._leader_has_all_committed(node)
        if isinstance(output.cut, Cut):
            assert output.cut.from_index > node.up.committed_index, "a committed entry is cut"
            self.counts.cuts += 1
        elif output.cut is not None:
            self._begin_is_committed(output.cut)
            self.counts.begins_anew += 1
        if output.committed_index is not None and not isinstance(output.cut, BeginAnew):
            self._commits_agree(node, output.committed_index)
        for completion in output.completions:
            if completion.status is AppendStatus.SUCCESS:
                self.counts.acknowledged += 1
                index, entry = completion.closure  # type: ignore[misc]
                assert self.committed[index] == entry, f"entry {index} is acknowledged and not committed"
            else:
                self.counts.unknown += 1
        for read in output.read_completions:
            number, index_min = read.closure  # type: ignore[misc]
            assert number in self.open_reads, f"read {number} is told a second outcome"
            self.open_reads.discard(number)
            if isinstance(read.outcome, Refusal):
                self.counts.reads_refused += 1
            else:
                assert read.outcome >= index_min, (
                    f"{node_id} reads up to {read.outcome}, committed was {index_min}"
                )
                self.counts.reads += 1

    def _begin_is_committed(self, begin: BeginAnew) -> None:
        index = begin.before_begin_index
        assert index < len(self.committed), f"a log begins behind entry {index}, which is not committed"
        header = parse_header(self.committed[index])
        assert (header.term, header.chain_crc) == (begin.before_begin_term, begin.before_begin_chain)

    def _leader_has_all_committed(self, node: Node) -> None:
        begin = node.log.ledger_begin_index
        assert begin <= len(self.committed), f"{node.node_id} leads, and has deleted what is not committed"
        for index, entry in enumerate(self.committed[begin:], begin):
            assert index <= node.log.ledger_end_index, f"{node.node_id} leads without committed entry {index}"
            assert node.log.entry(index) == entry, f"{node.node_id} leads with another entry {index}"

    def _commits_agree(self, node: Node, committed_index: Index) -> None:
        assert committed_index <= node.log.ledger_end_index, "a commit beyond the end"
        for index in range(node.log.ledger_begin_index, committed_index + 1):
            if index < len(self.committed):
                assert self.committed[index] == node.log.entry(index), f"two entries {index} are committed"
            else:
                self.committed.append(node.log.entry(index))

    def logs_match(self) -> None:
        """Entries of one index and term are the same, and so is all before them."""
        nodes = list(self.group.nodes.values())
        for left, right in pairwise(nodes):
            a, b = left.log, right.log
            for index in range(min(a.ledger_end_index, b.ledger_end_index), -1, -1):
                if a.term_at(Index(index)) == b.term_at(Index(index)):
                    assert a.chain_at(Index(index)) == b.chain_at(Index(index)), f"logs part below {index}"
                    break


class Soup:
    """Everything that may happen, in an order drawn from the seed."""

    def __init__(self, size: int, seed: int, *, voters: int = 0) -> None:
        """`voters`: with so many it was formed, and members come, go and lose their disks; 0: they are for good."""
        self.random = Random(seed)
        ids = [f"n{number}" for number in range(size)]
        self.group = CoreGroup(
            ids,
            seed,
            voters=ids[: voters or size],
            push_size_max=self.random.choice((60, 200, 5000)),
            push_window_size=5000,
        )
        self.judge = Judge(self.group)
        self.group.trace = self._trace
        self._appended = 0
        self._loss = self.random.choice((0.0, 0.02, 0.1))
        self._duplicates = self.random.choice((0.0, 0.05))
        self._reorder = self.random.choice((0.0, 0.1))
        self._crashes = self.random.choice((0.0, 0.003, 0.015))
        self._burst_max = self.random.choice((1, 4, 20))
        self._leader_faults = self.random.choice((0.0, 0.01, 0.03))
        self._vote_crashes = self.random.choice((0.0, 0.5, 1.0))
        self._just_voted: PeerId | None = None
        self._losses = self.random.choice((0.0, 0.5))
        self._restarts = self.random.choice((0.02, 0.1))
        self._link_changes = self.random.choice((0.004, 0.02))
        self._tick_ms = self.random.choice(((1, 5, 10, 20), (10, 40, 100, 200)))
        self._cut_off: set[tuple[PeerId, PeerId]] = set()
        # Of its own dice, so that what else happens in a seed does not depend on it.
        self._deletion_random = Random(f"{seed}/deletions")
        self._deletions = self._deletion_random.choice((0.0, 0.01, 0.05))
        self._read_random = Random(f"{seed}/reads")
        self._reads = self._read_random.choice((0.0, 0.05, 0.3))
        self._read_count = 0
        self._damage_random = Random(f"{seed}/damage")
        self._damages = self._damage_random.choice((0.0, 0.05, 0.3))
        self._change_random = Random(f"{seed}/changes")
        self._changes = self._change_random.choice((0.02, 0.1)) if voters else 0.0
        self._change_crashes = self._change_random.choice((0.0, 0.005, 0.02)) if voters else 0.0
        self._slow: PeerId | None = None  # its log is not synced, until the members change again
        self._wipes = self._change_random.choice((0.0, 0.1, 0.5)) if voters else 0.0
        for node_id in self.group.ids:
            self.group.start(node_id)

    def _trace(self, node_id: PeerId, output: Output) -> None:
        self.judge.on_output(node_id, output)
        for envelope in output.messages:
            message = envelope.message
            if (
                isinstance(message, VoteResponse)
                and not message.pre_vote
                and message.vote_result is VoteResult.ACCEPT
            ):
                self._just_voted = node_id

    def run(self, steps: int) -> Counts:
        for _ in range(steps):
            self._just_voted = None
            self._step()
            if self._deletion_random.random() < self._deletions:
                self._delete(self._deletion_random.choice(self.group.ids))
            if self._read_random.random() < self._reads:
                self._read(self._read_random.choice(self.group.ids))
            if self._damage_random.random() < self._damages:
                self._lose_next(self._damage_random.choice(self.group.ids))
            if self._change_random.random() < self._changes:
                self._change_members()
            if self._change_random.random() < self._change_crashes:
                self._crash_while_members_change()
            # Where it hurts: a vote is out, and the voter forgets all that it did not save.
            if self._just_voted is not None and self.random.random() < self._vote_crashes:
                self._crash(self._just_voted, closing=0.0)
                self._start(self._just_voted)
        self.judge.logs_match()
        return self.judge.counts

    def heal(self) -> None:
        """Faults end: one leader must be ready, and all must hold the same committed log."""
        group = self.group
        self._slow = None
        self._cut_off.clear()
        for node_id, node in group.nodes.items():
            if node.member is None:
                group.start(node_id)
        for pair in self._pairs():
            group.disconnect(*pair)
            group.connect(*pair)
        group.settle()
        group.run_until(lambda: group.leader() is not None, 20_000)
        group.run_until(lambda: len(self._ends()) == 1, 20_000)
        leader = group.leader()
        assert leader is not None
        self._append(leader)
        group.run_until(self._all_committed, 20_000)
        self.judge.logs_match()

    def _members(self) -> list[Node]:
        """As the leader knows them."""
        leader = self.group.leader()
        if leader is None:
            return []
        return [self.group.nodes[peer] for peer in self.group.nodes[leader].up.membership.members]

    def _ends(self) -> set[Index]:
        return {node.log.ledger_end_index for node in self._members()}

    def _all_committed(self) -> bool:
        committed = {node.up.committed_index for node in self._members()}
        return len(committed) == 1 and committed == self._ends()

    def _pairs(self) -> list[tuple[PeerId, PeerId]]:
        return [(a, b) for a in self.group.ids for b in self.group.ids if a < b]

    def _step(self) -> None:
        group, random = self.group, self.random
        up = [node_id for node_id, node in group.nodes.items() if node.member is not None]
        roll = random.random()
        if len(up) < len(group.ids) and random.random() < self._restarts:
            self._start(random.choice([node_id for node_id in group.ids if node_id not in up]))
        elif random.random() < self._leader_faults and (
            leaders := [node_id for node_id in up if group.nodes[node_id].up.role is Role.LEADER]
        ):
            self._depose(random.choice(leaders))
        elif roll < self._crashes and up:
            leading = [node_id for node_id in up if group.nodes[node_id].up.role is not Role.FOLLOWER]
            self._crash(random.choice(leading if leading and random.random() < 0.4 else up))
        elif roll < self._crashes + self._link_changes:
            self._change_link(*random.choice(self._pairs()))
        elif roll < 0.16:
            group.now_ms += random.choice(self._tick_ms)
            for node_id in up:
                if random.random() < 0.9:
                    group.tick(node_id)
        elif roll < 0.26:
            for node_id in up:
                if group.nodes[node_id].up.leader_ready:
                    self._append(node_id)
        elif roll < 0.42 and up:
            node_id = random.choice(up)
            finish = random.choice((group.save, group.sync, group.finish_cut))
            if node_id != self._slow or finish != group.sync:
                finish(node_id)
        else:
            for _ in range(random.randint(1, self._burst_max)):
                self._deliver()

    def _delete(self, node_id: PeerId) -> None:
        """Each member decides for itself what it still keeps of the committed entries that are on its disk."""
        node = self.group.nodes[node_id]
        log = node.log
        if node.member is None or node.cutting is not None:
            return
        last_index = min(node.member.committed_index, log.durable_index)
        if last_index >= log.ledger_begin_index:
            index = self._deletion_random.randint(log.ledger_begin_index, last_index)
            log.ledger_begin_index = Index(index + 1)
            self.judge.counts.deletions += 1

    def _read(self, node_id: PeerId) -> None:
        """It is not to miss what anybody has committed by now."""
        if self.group.nodes[node_id].member is not None:
            self._read_count += 1
            self.judge.open_reads.add(self._read_count)
            self.group.read(node_id, (self._read_count, len(self.judge.committed) - 1))

    def _change_members(self) -> None:
        """A leader takes a member in or out; one that is in already, or may not go, is refused."""
        random = self._change_random
        leaders = [node for node in self.group.nodes.values() if node.member and node.member.leader_ready]
        if not leaders:
            return
        leader, peer = random.choice(leaders), random.choice(self.group.ids)
        is_member = peer in leader.up.membership.members
        changes = leader.up.changes
        wanted = changes.remove(peer) if is_member else changes.add(peer, "")
        if self.group.change_members(leader.node_id, wanted) is None:
            self._slow = random.choice([*leader.up.membership.voters, None])
            self.judge.counts.removed += is_member
            self.judge.counts.added += not is_member

    def _crash_while_members_change(self) -> None:
        """Where it hurts: what a leader acknowledges then may be on its disk and on the newcomer's alone."""
        up = [node for node in self.group.nodes.values() if node.member is not None]
        changing = [
            node.node_id
            for node in up
            if node.up.role is Role.LEADER and node.up.membership_index >= max(0, node.up.committed_index - 2)
        ]
        if changing:
            self._crash(self._change_random.choice(changing), closing=1.0)

    def _lose_next(self, node_id: PeerId) -> None:
        """What is to be committed next is damaged there, and no peer that it can reach has it."""
        node = self.group.nodes[node_id]
        if node.member is not None and node.member.leader_ready:
            term, next_index = node.member.curr_term, Index(node.member.committed_index + 1)
            output = node.member.nobody_has(next_index, node.log.ledger_end_index, self.group.now_ms)
            self.group.carry_out(node_id, output)
            self.judge.counts.let_go += (node.member.role, node.member.curr_term) == (Role.FOLLOWER, term)

    def _append(self, node_id: PeerId) -> None:
        group, random = self.group, self.random
        node = group.nodes[node_id]
        self._appended += 1
        bodies = [b"%d.%d" % (self._appended, number) for number in range(random.randint(1, 3))]
        if node.up.check_append(sum(map(len, bodies)), len(bodies)) is None:
            batch = node.log.append(bodies, node.up.curr_term)
            closure = (batch.last_index, node.log.entry(batch.last_index))
            group.carry_out(node_id, node.up.append(batch, closure, group.now_ms))

    def _deliver(self) -> None:
        group, random = self.group, self.random
        links = [pair for pair, link in group.links.items() if link]
        if not links:
            return
        pair = random.choice(links)
        link = group.links[pair]
        if pair in self._cut_off or random.random() < self._loss:
            link.popleft()
            return
        if random.random() < self._duplicates:
            link.append(link[0])
        at = random.randrange(len(link)) if random.random() < self._reorder else 0
        group.deliver(*pair, at)

    def _change_link(self, a: PeerId, b: PeerId) -> None:
        group, random = self.group, self.random
        directions = random.choice(([(a, b)], [(b, a)], [(a, b), (b, a)]))
        if self._cut_off and random.random() < 0.7:
            self._cut_off.clear()
            group.connect(a, b)
        else:
            self._cut_off.update(directions)
            if random.random() < 0.5:
                group.disconnect(a, b)  # else the packets vanish and nobody is told

    def _start(self, node_id: PeerId) -> None:
        self.group.start(node_id)
        for peer in self.group.ids:
            if peer != node_id:
                self.group.connect(node_id, peer)

    def _crash(self, node_id: PeerId, closing: float = 0.8) -> None:
        """`closing`: the chance of each connection to close, with what is on its way."""
        group = self.group
        self.judge.counts.crashes += 1
        log = group.nodes[node_id].log
        # Of what was not synced, any part may have reached the disk.
        group.crash(node_id, keep=self.random.randint(0, log.ledger_end_index - log.durable_index))
        if self.random.random() < self._losses and self._may_lose(node_id):
            self._lose_acknowledged(node_id)
            if self._change_random.random() < self._wipes:
                group.wipe(node_id)
                self.judge.counts.wiped += 1
        for peer in group.ids:
            if peer != node_id and self.random.random() < closing:
                group.disconnect(node_id, peer)

    def _depose(self, node_id: PeerId) -> None:
        """A leader that falls before its entries are everywhere leaves the logs that part."""
        if self.random.random() < 0.5:
            self._crash(node_id)
        else:
            for peer in self.group.ids:
                if peer != node_id:
                    self.group.disconnect(node_id, peer)

    def _may_lose(self, node_id: PeerId) -> bool:
        """As long as a majority has lost nothing, nothing acknowledged is lost: of the voters by the newest committed
        change, and of those by one that may yet be committed. A wiped disk has lost all as long as it has no seat.
        """
        nodes = self.group.nodes
        hurt = {peer for peer, node in nodes.items() if node.hard_state.doubted} | {node_id}
        logs = [node.log for node in nodes.values()]
        views = {log.membership_index: log.membership() for log in logs}
        committed = [index for index in views if index < len(self.judge.committed)]
        if not committed:
            committed, views[-1] = [Index(-1)], logs[0].formed
        counting = [view for index, view in views.items() if index >= max(committed)]
        return all(
            sum(peer in hurt or nodes[peer].disk != seat.disk for peer, seat in view.voters.items())
            <= (len(view.voters) - 1) // 2
            for view in counting
        )

    def _lose_acknowledged(self, node_id: PeerId) -> None:
        """What a power loss under ASYNC_FLUSH takes: entries that were acknowledged from the page cache."""
        node = self.group.nodes[node_id]
        self.judge.counts.losses += 1
        count_max = node.log.ledger_end_index + 1 - node.log.ledger_begin_index
        node.log.lose_durable(self.random.randint(0, count_max))
        node.hard_state = replace(node.hard_state, doubted=True)
