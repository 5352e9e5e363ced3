"""What the synced mark says and no entry of the log does, once more in a file of its own: behind what the log begins,
and who the members were there.

Retention deletes the entries that say it. A member that lost the mark would go by the group's formation: one that
formed it alone would lead alone, beside the others. And nobody could prove the first entry, here or where a log begins
behind the same one.
"""

import msgspec

from disk.disk import Disk
from disk.slots import read_or_drop_slots
from dledger.entry import GENESIS_CHAIN, Index, Pos, Term

_NO_INDEX = Index(-1)
_NO_TERM = Term(-1)
_NO_POS = Pos(0)

BEGIN_MARK_FILE_NAME = "begin-mark"


class BeginMark(msgspec.Struct, frozen=True, kw_only=True):
    """Membership entries: see membership_entries.py. Their bodies are in hexadecimal digits."""

    data_file_size: int = 0  # a group constant: positions mean nothing without it; 0: not known
    # What lies before the first entry. The chain is GENESIS_CHAIN, behind an entry, where nobody knew it any more.
    before_begin_index: Index = _NO_INDEX
    before_begin_term: Term = _NO_TERM
    before_begin_chain: int = GENESIS_CHAIN
    # Where the first entry lies, or will lie; files before it are gone, or are to be.
    begin_pos: Pos = _NO_POS
    # The last membership entry before those of `membership_indexes`, if there is any. It lies before the first entry,
    # or counts there in place of one that was let go.
    before_begin_membership_index: Index = _NO_INDEX
    before_begin_membership: str = ""
    # The newest ones up to the synced mark: recovery looks for none of them again. And what the last one says.
    membership_indexes: tuple[Index, ...] = ()
    last_membership_index: Index = _NO_INDEX
    last_membership: str = ""


class BeginMarkFile:
    """Two slots on disk, written where synced marks are, in front of them."""

    def __init__(self, disk: Disk, directory: str) -> None:
        """Raises nothing for an unreadable file: the mark has it all, and with the next start the file as well."""
        self._kept: bytes | None = None  # what both slots are known to hold on disk
        self.slots, _ = read_or_drop_slots(
            disk, f"{directory}/{BEGIN_MARK_FILE_NAME}", "begin mark is lost and written anew"
        )

    @property
    def mark(self) -> BeginMark:
        """As it was written or read last; of a log that begins with entry 0 if it never was. Fields of a later release
        are passed over.
        """
        payload = self.slots.payload
        return msgspec.json.decode(payload, type=BeginMark) if payload is not None else BeginMark()

    def keep(self, mark: BeginMark) -> None:
        """When this returns, both slots hold it on disk: damage to one must not bring back what was before. Blocks on
        syncs if they did not. Raises DiskError; after want of space it may be called again.
        """
        payload = msgspec.json.encode(
            BeginMark(**{name: getattr(mark, name) for name in BeginMark.__struct_fields__})
        )
        if payload == self._kept:
            return
        self._kept = None
        if payload == self.slots.payload:
            self.slots.make_durable()
        else:
            self.slots.write(payload)
        self.slots.sync_copy()
        self._kept = payload

    def make_durable(self) -> None:
        """Of what was read: before anything is done that follows from it. Blocks on syncs. Raises DiskError."""
        self.slots.make_durable()
        self.slots.sync_copy()

    def close(self) -> None:
        self.slots.close()
