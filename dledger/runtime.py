"""What a replica asks of those around it: of its runtime below (the server or the simulator), of its embedder above."""

from collections.abc import Callable, Sequence
from typing import Protocol

from dledger.core.messages import Message, PeerId
from dledger.core.output import AppendStatus, RoleChange
from dledger.core.refusal import Refusal
from dledger.entry import Index, Pos, Term
from dledger.log.jobs import DiskJob
from dledger.rpc.requests import RepairMessage

OnDone = Callable[[AppendStatus], None]
OnReadIndex = Callable[[Index | Refusal], None]


class Runtime(Protocol):
    """What a replica needs done outside: by the server, or by the simulator."""

    def send(self, to: PeerId, message: Message | RepairMessage, buffers: Sequence[bytes]) -> None:
        """To that peer, if it can be reached now; else it is lost. `buffers`: raw entry bytes."""
        ...

    def submit(self, job: DiskJob) -> None:
        """Runs job.run() in another thread (or later), then calls job_done(job, error, now_ms) here."""
        ...

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Calls it after the present call into the replica has returned; order is kept."""
        ...

    def drop_connection(self, peer: PeerId, reason: str) -> None:
        """The peer sent what it must not."""
        ...

    def failed(self, reason: str) -> None:
        """This member must not go on: stop it, loudly."""
        ...


class SystemEntry(Protocol):
    """An entry that the replica appends by itself, with bytes that only the embedder can make."""

    @property
    def size(self) -> int:
        """Of the body, bytes."""
        ...

    def encode(self, pos: Pos, now_ms: int) -> bytes: ...


class Embedder(Protocol):
    """Whose log this is. Called when the outermost call into the replica has carried out its work, never
    inside append(); it may append from within.
    """

    def is_sound_body(self, body: memoryview) -> bool:
        """Of an entry that Java wrote: whether it is whole. Asked before anything else."""
        ...

    def no_op(self, term: Term) -> SystemEntry: ...

    def membership_entry(self, payload: bytes) -> SystemEntry:
        """An entry that says who the members are."""
        ...

    def membership_payload(self, body: bytes) -> bytes:
        """Of the body of such an entry. Raises ValueError."""
        ...

    def committed(self, committed_index: Index) -> None: ...

    def role_changed(self, change: RoleChange) -> None: ...

    def log_cut(self, from_index: Index) -> None:
        """Whatever was kept about entries from there on is void."""
        ...

    def log_began_anew(self, before_begin_index: Index) -> None:
        """Entries up to that one, which is committed, are gone before they could all be applied, and whatever was kept
        about any entry is void. Comes before the commits that follow from it.
        """
        ...
