"""The network between simulated hosts: directed paths that lose, delay, repeat and block, and connections over them.

As in dledger/server.py each member dials every other: requests travel on the connection that the sender has dialled,
answers on the one that the other has. A path may lose single messages of a connection that stays up; TCP never does
that, but the core does not rely on it. What is on its way to a process that ends goes with it: a connection has two
ends, and a member that starts and doubts itself relies on that.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from dledger.core.messages import (
    HeartBeatResponse,
    Message,
    PeerId,
    PushResponse,
    ReadIndexResponse,
    VoteResponse,
)
from dledger.entry import Term
from dledger.pushed_entries import Received
from dledger.rpc.requests import RepairMessage, RepairResponse
from simulator.harness.options import Options
from simulator.world.event_loop import EventLoop

_ANSWERS = (VoteResponse, HeartBeatResponse, PushResponse, RepairResponse, ReadIndexResponse)
_DIAL_BACKOFF_US = (20_000, 500_000)
# As DLedgerConfig.link_silence_ms_max: what a host that is gone without a word is noticed by.
SILENCE_US = 3_000_000
_STRAGGLER_US = (50_000, 3_000_000)
_REPEATED_US_MAX = 30_000
_OLD_ANSWERS_MAX = 16  # of a member


@dataclass(frozen=True, slots=True)
class Connection:
    dialler: PeerId
    acceptor: PeerId
    number: int  # no two connections have the same


class Endpoint(Protocol):
    """What the network sees of a member."""

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        ...

    @property
    def life(self) -> int:
        """Of the process that runs, or of the last one."""
        ...

    @property
    def is_paused(self) -> bool:
        """Whether it stands still, so that it answers no handshake."""
        ...

    def received(self, sender: PeerId, messages: Sequence[Received]) -> None:
        """What one read of a connection has brought."""
        ...

    def link_up(self, connection: "Connection", peer: PeerId) -> None: ...

    def link_down(self, connection: "Connection", peer: PeerId) -> None: ...


@dataclass(slots=True)
class Path:
    """One direction between two hosts."""

    is_blocked: bool = False
    free_us: int = 0  # when the last message arrives: the next comes behind it unless the network reorders
    # What arrives then, in one read: (sent at, to which life of the receiver, what) of each message.
    read: list[tuple[int, int, Received]] = field(default_factory=list)
    # Of what was sent up to then, what would arrive from the other time on is lost.
    cut_us: int = -1
    lost_from_us: int = 0


class SimNetwork:
    """Invariant: a connection that is up was announced to both its ends, and is not up towards a dead process."""

    def __init__(self, loop: EventLoop, options: Options, random: Random, spoil_random: Random) -> None:
        self.members: dict[PeerId, Endpoint] = {}
        self.paths: dict[tuple[PeerId, PeerId], Path] = {}
        self.up: dict[tuple[PeerId, PeerId], Connection] = {}  # by (dialler, acceptor)
        self.is_healed = False  # no losses, delays of a quiet network
        self.sent = self.lost = 0
        self.spoiled = 0  # answers to repairs that came with other bytes
        # To each member, the last acknowledgement by each other in each term: what a late repetition would say.
        self._acknowledged: dict[PeerId, dict[tuple[PeerId, Term], PushResponse]] = {}
        self.on_send: Callable[[PeerId, PeerId, Message | RepairMessage], None] | None = None
        self._loop = loop
        self._options = options
        self._random = random
        self._spoil_random = spoil_random
        self._connection_count = 0
        self._dialling: set[tuple[PeerId, PeerId]] = set()

    def add(self, member_id: PeerId, endpoint: Endpoint) -> None:
        for other in self.members:
            self.paths[member_id, other] = Path()
            self.paths[other, member_id] = Path()
        self.members[member_id] = endpoint
        self._acknowledged[member_id] = {}

    def remove(self, member_id: PeerId) -> None:
        """Its host is gone for good. What others send there is lost."""
        del self.members[member_id]

    # -- messages ----------------------------------------------------------------------------------------------

    def send(
        self, sender: PeerId, to: PeerId, message: Message | RepairMessage, buffers: Sequence[bytes]
    ) -> None:
        connection = (to, sender) if isinstance(message, _ANSWERS) else (sender, to)
        if isinstance(message, PushResponse):
            self._keep(sender, to, message)
        self.sent += 1
        if self.on_send is not None:
            self.on_send(sender, to, message)
        random, options = self._random, self._options
        path = self.paths.get((sender, to))
        if (
            path is None  # that host went before the sender came
            or connection not in self.up
            or path.is_blocked
            or (not self.is_healed and random.random() < options.packet_loss)
        ):
            self.lost += 1
            return
        payload = b"".join(buffers)
        if isinstance(message, RepairResponse) and payload:
            payload = self._maybe_spoiled(payload)
        self._deliver_later(path, sender, to, message, payload)
        if not self.is_healed and options.duplication and random.random() < options.duplication:
            self._deliver_later(path, sender, to, message, payload)

    def _deliver_later(
        self, path: Path, sender: PeerId, to: PeerId, message: Message | RepairMessage, payload: bytes
    ) -> None:
        at_us = self._loop.now_us + self.draw_delay_us()
        receiver = self.members[to]
        read: list[tuple[int, int, Received]] = []
        straggling = self._options.straggling
        if straggling and not self.is_healed and self._random.random() < straggling:
            at_us += self._random.randint(*_STRAGGLER_US)
        elif not self._options.reorders or self.is_healed:
            if path.free_us < at_us:
                path.free_us, path.read = at_us, read
            at_us, read = path.free_us, path.read
        read.append((self._loop.now_us, receiver.life, (message, payload)))
        if len(read) == 1:
            self._loop.call_at(at_us, self._arrive, path, receiver, sender, read)

    def _arrive(
        self, path: Path, receiver: Endpoint, sender: PeerId, read: list[tuple[int, int, Received]]
    ) -> None:
        messages: list[Received] = []
        arrived = read.copy()
        read.clear()  # what is sent from now on is of another read
        for sent_us, life, received in arrived:
            is_cut = sent_us <= path.cut_us and self._loop.now_us >= path.lost_from_us
            if is_cut or receiver.life != life:
                self.lost += 1
            else:
                messages.append(received)
        if messages:
            receiver.received(sender, messages)

    def cut_short(self, sender: PeerId, random: Random) -> None:
        """Of what it has on its way to each other, the first part arrives and the rest does not: as a reset takes what
        was not read yet.
        """
        now_us = self._loop.now_us
        for (from_member, _), path in self.paths.items():
            if from_member == sender:
                path.cut_us = now_us
                path.lost_from_us = now_us + random.randint(0, self._options.delay_us_max)

    def _keep(self, sender: PeerId, to: PeerId, answer: PushResponse) -> None:
        kept = self._acknowledged[to]
        kept.pop((sender, answer.term), None)
        kept[sender, answer.term] = answer
        if len(kept) > _OLD_ANSWERS_MAX:
            del kept[next(iter(kept))]

    def repeat_acknowledgements(self, to: PeerId, in_term: Term, random: Random) -> int:
        """What others acknowledged to it in earlier terms arrives once more, whatever has become of it there. How many
        come, each in its own time.
        """
        answers = [
            (sender, answer) for (sender, term), answer in self._acknowledged[to].items() if term < in_term
        ]
        for sender, answer in answers:
            delay_us = int(_REPEATED_US_MAX ** random.random())
            self._loop.call_later(delay_us, self.members[to].received, sender, [(answer, b"")])
        return len(answers)

    def _maybe_spoiled(self, payload: bytes) -> bytes:
        """With one bit flipped: as a peer sends it that has something else, or a path that no CRC guards."""
        random = self._spoil_random
        if self.is_healed or random.random() >= self._options.repairs_spoiled:
            return payload
        self.spoiled += 1
        spoiled = bytearray(payload)
        spoiled[random.randrange(len(spoiled))] ^= 1 << random.randrange(8)
        return bytes(spoiled)

    def draw_delay_us(self) -> int:
        options = self._options
        high = min(options.delay_us_max, 2_000) if self.is_healed else options.delay_us_max
        return self._random.randint(min(options.delay_us_min, high), high)

    # -- connections -------------------------------------------------------------------------------------------

    def pairs(self) -> Iterator[tuple[PeerId, PeerId]]:
        return ((dialler, other) for dialler in self.members for other in self.members if dialler != other)

    def started(self, member_id: PeerId) -> None:
        """Its process runs: it dials, and is found by the others at their next try."""
        for dialler, other in self.pairs():
            if member_id in (dialler, other):
                self._dial_later(dialler, other, soon=dialler == member_id)

    def process_ended(self, member_id: PeerId, *, silently: bool) -> None:
        """The host closes its connections, or, `silently` without power, says nothing until it is missed."""
        for pair, connection in list(self.up.items()):
            if member_id in pair:
                del self.up[pair]
                peer = connection.acceptor if connection.dialler == member_id else connection.dialler
                self._tell_down(connection, peer, is_heard=not silently)

    def close(self, dialler: PeerId, acceptor: PeerId) -> None:
        """Both ends learn it, each when word gets there."""
        connection = self.up.pop((dialler, acceptor), None)
        if connection is not None:
            self._tell_down(connection, dialler, is_heard=True)
            self._tell_down(connection, acceptor, is_heard=True)
            self._dial_later(dialler, acceptor)

    def _tell_down(self, connection: Connection, end: PeerId, *, is_heard: bool) -> None:
        peer = connection.acceptor if connection.dialler == end else connection.dialler
        is_heard = is_heard and not self.paths[peer, end].is_blocked
        delay_us = self.draw_delay_us() if is_heard else SILENCE_US
        self._loop.call_later(delay_us, self.members[end].link_down, connection, peer)

    def _dial_later(self, dialler: PeerId, acceptor: PeerId, *, soon: bool = False) -> None:
        if (dialler, acceptor) in self._dialling and not soon:
            return
        self._dialling.add((dialler, acceptor))
        delay_us = self.draw_delay_us() if soon else self._random.randint(*_DIAL_BACKOFF_US)
        self._loop.call_later(delay_us, self._dial, dialler, acceptor)

    def _dial(self, dialler: PeerId, acceptor: PeerId) -> None:
        self._dialling.discard((dialler, acceptor))
        members = self.members
        if dialler not in members or acceptor not in members:
            return  # gone for good
        if (dialler, acceptor) in self.up or not members[dialler].is_running:
            return  # a process that starts dials anew
        is_blocked = self.paths[dialler, acceptor].is_blocked or self.paths[acceptor, dialler].is_blocked
        ends = members[dialler], members[acceptor]
        if is_blocked or any(end.is_paused or not end.is_running for end in ends):
            self._dial_later(dialler, acceptor)
            return
        self._connection_count += 1
        connection = self.up[dialler, acceptor] = Connection(dialler, acceptor, self._connection_count)
        members[acceptor].link_up(connection, dialler)
        members[dialler].link_up(connection, acceptor)
        # Who is dialled sees that the other is there, and does not sit out its back-off.
        if (acceptor, dialler) not in self.up:
            self._dial_later(acceptor, dialler, soon=True)
