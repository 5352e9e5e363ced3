"""Term, vote, doubt and identity of a member: what must not be forgotten for as long as the disk lives.

DLedger keeps term and vote in a properties file that it neither syncs nor misses: when it cannot be read, the node
starts at term 0 and may vote twice. Here whoever cannot read it is somebody else from then on, without a vote.
"""

import logging
from enum import Enum

import msgspec
import orjson
from msgspec.structs import replace

from disk.disk import Disk
from disk.slots import Slots, SlotsUnreadableError
from dledger.core.messages import PeerId
from dledger.core.output import HardState
from dledger.entry import Term
from dledger.log.java_files import find_java_run
from dledger.log.synced_mark import MARK_FILE_NAME

log = logging.getLogger(__name__)

QUORUM_STATE_FILE_NAME = "quorum-state"


class MemberIdentity(msgspec.Struct, frozen=True):
    """Who a member is apart from its id, which a member with an empty disk would have as well."""

    disk_uuid: bytes  # durable before anybody is told
    data_file_size: int  # a group constant
    group_uuid: bytes | None = None  # None: the group is not formed yet, as far as this member knows
    pairs: tuple[tuple[PeerId, bytes], ...] = ()  # (member id, disk uuid) as the group was formed, sorted
    # Of the last run: the host's boot, whether it has stopped cleanly since, and whether it acknowledged from the page
    # cache (ASYNC_FLUSH). Of that only a power loss takes anything, and so differs from a crash of the process.
    boot_id: str = ""
    stopped_cleanly: bool = False
    from_page_cache: bool | None = None  # None: of a release that did not say


class LastRun(Enum):
    """How the last run of ours on a disk ended, as far as is known."""

    UNKNOWN = "UNKNOWN"  # there was none, or the quorum state is lost
    BROKEN_OFF = "BROKEN_OFF"
    STOPPED_CLEANLY = "STOPPED_CLEANLY"  # so the synced mark tells of all that was acknowledged


class _State(msgspec.Struct, frozen=True):
    revision: int
    hard_state: HardState
    identity: MemberIdentity | None


class StoreQuorumStateJob:
    """Writes the state as it was when the job was made, unless a later one is on disk already."""

    __slots__ = ("_file", "_state")
    kind = "quorum-state"

    def __init__(self, file: "_StateFile", state: _State) -> None:
        self._file = file
        self._state = state

    def run(self) -> None:
        self._file.write(self._state)


def made_with_data_file_size(disk: Disk, directory: str) -> int | None:
    """What the member of a `dledger-<id>` directory says. None: nothing that can be read. Changes nothing."""
    try:
        slots = Slots(disk, f"{directory}/pydledger/{QUORUM_STATE_FILE_NAME}")
    except SlotsUnreadableError:
        return None
    identity = _unpack(slots.payload).identity if slots.payload is not None else None
    slots.close()
    return identity.data_file_size if identity is not None else None


class QuorumState:
    """Invariant: `hard_state` and `identity` are the newest given or read; a finished job has made its own durable."""

    def __init__(self, file: "_StateFile", state: _State) -> None:
        self._file = file
        self._state = state

    @classmethod
    def load(cls, disk: Disk, directory: str) -> "QuorumState":
        """`directory` is the `dledger-<id>` directory. Blocks: what was read is on disk for sure when this returns.

        No file is a first start: term 0, no vote, no identity. Terms that Java's DLedger has used here since are left
        behind. To be called before the log is opened, for a log without a quorum state is one that has lost it.

        A file that is damaged, or missing although the ledger has entries, makes a doubted member without an identity:
        under the disk uuid that it takes next its votes count for nobody, until the leader has given it a seat. A
        damaged file is kept beside the new one. Raises DiskError.
        """
        own_directory = f"{directory}/pydledger"
        disk.make_directory(own_directory)
        disk.sync_parents(own_directory)
        path = f"{own_directory}/{QUORUM_STATE_FILE_NAME}"
        lost: str | None = None
        try:
            slots = Slots(disk, path)
        except SlotsUnreadableError as error:
            disk.rename(path, f"{path}.unreadable")
            disk.sync_directory(own_directory)
            slots, lost = Slots(disk, path), str(error)
        if slots.payload is None:
            if lost is None and _has_entries(disk, own_directory):
                lost = f"{path}: missing, although the ledger beside it has entries"
            if lost is not None:
                log.error("term and vote are lost, the votes of this disk count no more reason=%s", lost)
            fresh = HardState(sequence=0, curr_term=Term(0), curr_vote_for=None, doubted=lost is not None)
            loaded = cls(_StateFile(slots, 0), _State(0, fresh, None))
        else:
            slots.make_durable()
            slots.sync_copy()
            state = _unpack(slots.payload)
            loaded = cls(_StateFile(slots, state.revision), state)
        java_run = find_java_run(disk, directory)
        if java_run is not None:
            loaded._leave_behind(java_run.term)
        return loaded

    @property
    def hard_state(self) -> HardState:
        return self._state.hard_state

    @property
    def last_run(self) -> LastRun:
        """Until the next one begins (run_record.py)."""
        if self.identity is None:
            return LastRun.UNKNOWN
        return LastRun.STOPPED_CLEANLY if self.identity.stopped_cleanly else LastRun.BROKEN_OFF

    @property
    def identity(self) -> MemberIdentity | None:
        """None: this disk has never been a member's."""
        return self._state.identity

    @property
    def slots(self) -> Slots:
        return self._file.slots

    def store_job(self, hard_state: HardState) -> StoreQuorumStateJob:
        return self._job(replace(self._state, hard_state=hard_state))

    def store_identity_job(self, identity: MemberIdentity) -> StoreQuorumStateJob:
        return self._job(replace(self._state, identity=identity))

    def set_term(self, term: Term) -> None:
        """By an operator. To lower it is safe only if no vote that was given above `term` still counts for anybody.
        Blocks. Raises DiskError.
        """
        state = self.hard_state
        assert term != state.curr_term, "a vote of this very term would be forgotten"
        self.store_job(HardState(state.sequence + 1, term, None, state.doubted)).run()

    def close(self) -> None:
        """No job may be under way."""
        self._file.slots.close()

    def _leave_behind(self, term: Term) -> None:
        """Nobody votes or leads in that term, or one before it, with this member. Blocks."""
        state = self.hard_state
        if state.curr_term <= term:
            log.info("term raised from=%d above=%d, which Java's DLedger has used", state.curr_term, term)
            raised = HardState(state.sequence + 1, Term(term + 1), None, state.doubted)
            self.store_job(raised).run()

    def _job(self, state: _State) -> StoreQuorumStateJob:
        self._state = replace(state, revision=self._state.revision + 1)
        return StoreQuorumStateJob(self._file, self._state)


def unpack_identity(payload: bytes) -> MemberIdentity | None:
    """Of a slot's payload, for those who look at a disk that is not theirs."""
    return _unpack(payload).identity


class _StateFile:
    def __init__(self, slots: Slots, written_revision: int) -> None:
        self.slots = slots
        self._written_revision = written_revision

    def write(self, state: _State) -> None:
        with self.slots.lock:
            # Each state holds all changes before it, so a job overtaken by a later one has nothing left to do.
            if state.revision > self._written_revision:
                self.slots.write_locked(_pack(state))
                self.slots.sync_copy_locked()
                self._written_revision = state.revision


def _has_entries(disk: Disk, own_directory: str) -> bool:
    try:
        slots = Slots(disk, f"{own_directory}/{MARK_FILE_NAME}")
    except SlotsUnreadableError:
        return True
    slots.close()
    return slots.payload is not None and orjson.loads(slots.payload)["index"] >= 0


def _pack(state: _State) -> bytes:
    return orjson.dumps(msgspec.to_builtins(state, builtin_types=(bytes,)), default=bytes.hex)


def _unpack(payload: bytes) -> _State:
    fields = orjson.loads(payload)
    identity = fields["identity"]
    if identity is not None:
        # Of another release there may be more: what this one does not know it leaves out.
        identity = {name: identity[name] for name in MemberIdentity.__struct_fields__ if name in identity}
        identity["disk_uuid"] = bytes.fromhex(identity["disk_uuid"])
        identity["pairs"] = tuple((peer, bytes.fromhex(uuid)) for peer, uuid in identity["pairs"])
        if identity["group_uuid"] is not None:
            identity["group_uuid"] = bytes.fromhex(identity["group_uuid"])
    return _State(
        fields["revision"],
        HardState(**fields["hard_state"]),
        MemberIdentity(**identity) if identity is not None else None,
    )
