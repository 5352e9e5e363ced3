"""What the synced mark tells of the membership entries, and once more in a file of its own.

Retention deletes those entries. Then the mark alone says who the members are, and a member that loses it would go by
the group's formation: one that formed it alone would lead alone, beside the others.
"""

import logging
from dataclasses import asdict, dataclass, fields

import orjson

from disk.disk import Disk
from disk.slots import Slots, SlotsUnreadableError
from dledger.entry import Index

log = logging.getLogger(__name__)

_NO_INDEX = Index(-1)

TOLD_MEMBERS_FILE_NAME = "told-members"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldMembers:
    """See membership_entries.py; bodies are in hexadecimal digits."""

    # The last membership entry before those of `membership_indexes`, if there is any. It lies before the first entry of
    # the log, or counts there in place of one that was let go.
    before_begin_membership_index: Index = _NO_INDEX
    before_begin_membership: str = ""
    # The newest ones up to the mark: recovery looks for none of them again. And what the last one says.
    membership_indexes: tuple[Index, ...] = ()
    last_membership_index: Index = _NO_INDEX
    last_membership: str = ""


_FIELDS = tuple(field.name for field in fields(ToldMembers))


class ToldMembersFile:
    """Two slots on disk, there only once a membership entry was. Written where marks are, in front of them: so it is
    never older than the mark.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        """Raises nothing for an unreadable file: the mark has it all, and with the next start the file as well."""
        self.slots, _ = read_slots(
            disk,
            f"{directory}/{TOLD_MEMBERS_FILE_NAME}",
            "the members that the synced mark told are lost here",
        )

    @property
    def told(self) -> ToldMembers:
        """As it was written or read last; nothing if it never was."""
        payload = self.slots.payload
        if payload is None:
            return ToldMembers()
        told = orjson.loads(payload)
        return ToldMembers(**told | {"membership_indexes": tuple(told["membership_indexes"])})

    def keep(self, told: ToldMembers) -> None:
        """When this returns, it is on disk. Blocks on syncs if it was not. Raises DiskError; after want of space it may
        be called again.
        """
        told = ToldMembers(**{name: getattr(told, name) for name in _FIELDS})
        payload = orjson.dumps(asdict(told))
        if payload == self.slots.payload:
            self.slots.make_durable()  # nothing to do but for what was read, or not wholly written
        elif self.slots.payload is not None or told != ToldMembers():
            self.slots.write(payload)
            # Damage to one slot must not bring back those of before.
            self.slots.sync_copy()

    def close(self) -> None:
        self.slots.close()


def read_slots(disk: Disk, path: str, consequence: str) -> tuple[Slots, str | None]:
    """Those of a file that may be lost, and why they are unreadable: the file then is gone."""
    try:
        return Slots(disk, path), None
    except SlotsUnreadableError as error:
        log.warning("%s: %s", consequence, error)
        disk.unlink(path)
        return Slots(disk, path), str(error)
