"""A replica on disk: which files it consists of, and what its own small files say about it. Reads, never writes.

Of our own members, of Java's DLedger and of a plain CommitLog alike. A `Replica` is a value that pickles: it goes with
each unit of work to whoever reads the files, so the paths must mean the same there.
"""

from __future__ import annotations

import fcntl
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from disk.slots import newest_payload
from dledger.log.committed_mark import COMMITTED_MARK_FILE_NAME, unpack_committed_mark
from dledger.log.quorum_state import QUORUM_STATE_FILE_NAME, unpack_identity
from dledger.log.synced_mark import MARK_FILE_NAME, SyncedMark, unpack_mark
from store.derived.checkpoint_file import CHECKPOINT_NAMES, Checkpoint, unpack_checkpoint
from store.index.index_file_mark import MARK_FILE_NAME as INDEX_FILE_MARK_NAME
from store.index.index_file_mark import IndexFileMark, unpack_index_file_mark
from verify.log.data_file import (
    DataFile,
    Layout,
    data_files,
    in_their_places,
    usual_size,
    without_strays,
)

EVERYTHING: Final = 2**63 - 1  # behind all positions, offsets, indexes and times
_NUMBER_LINE = re.compile(rb"^[ \t]*(\w+)[ \t]*=[ \t]*(-?\d{1,19})\s*$", re.MULTILINE)
_FLOCK = struct.Struct("hhqqi4x")  # l_type, l_whence, l_start, l_len, l_pid


class ReplicaError(Exception):
    """There is no replica to read at a path. The text says what was expected there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """`data_files` in the order of their names. Nothing about their content has been checked."""

    name: str  # unique among the replicas of a validation
    group: str  # first half of the group uuid in hex; "" where no file says one
    directory: str  # storePathRootDir: consumequeue/, index/ and config/ are in it
    layout: Layout
    data_directory: str
    data_files: tuple[DataFile, ...]
    data_file_size: int
    stray_files: tuple[
        DataFile, ...
    ] = ()  # whose names say that they lie inside of another: no part of the log
    # Those of `data_files` whose names say another position than their entries do: `base` is what the entries say.
    renamed_files: tuple[DataFile, ...] = ()
    is_live: bool = False
    stopped_cleanly: bool = True  # no `abort` file
    mark: SyncedMark | None = None
    # Entries and ConsumeQueue units up to this index are surely in the files, and committed; -1: no file says.
    applied_index: int = -1
    # What the process that runs here has told its own files of the commit; -1: nothing, or nobody runs here.
    told_committed_index: int = -1
    # What Java's dledger-<id>/checkpoint says; -1: no such file.
    java_end_index: int = -1
    java_committed_index: int = -1
    # Topics, and where the entry lies that deleted each of them last, as the newest checkpoint has them.
    deleted_topics: tuple[tuple[str, int], ...] = ()
    # What the mark of our own IndexFiles says; None: no file says.
    index_file_mark: IndexFileMark | None = None

    @property
    def known_committed_index(self) -> int:
        """As far as the files say. -1: they say nothing."""
        return max(self.applied_index, self.java_committed_index, self.told_committed_index)

    @property
    def begin_pos(self) -> int:
        return self.data_files[0].base if self.data_files else 0

    def relative(self, path: str) -> str:
        """As findings name files."""
        return os.path.relpath(path, self.directory)


def open_replicas(directories: Sequence[str | Path]) -> list[Replica]:
    """Raises ReplicaError when a directory holds none, or two have the same place."""
    replicas = [open_replica(directory) for directory in directories]
    places = [os.path.realpath(replica.data_directory) for replica in replicas]
    for number, place in enumerate(places):
        if place in places[:number]:
            raise ReplicaError(f"{directories[number]} was given twice")
    names = [replica.name for replica in replicas]
    if len(set(names)) < len(names):
        # Copies of one member, or members of several groups.
        replicas = [replace(replica, name=replica.directory) for replica in replicas]
    return replicas


def open_replica(directory: str | Path) -> Replica:
    """`directory`: storePathRootDir, or the dledger-<id> or commitlog directory in it. Raises ReplicaError."""
    root = Path(directory)
    if not root.is_dir():
        raise ReplicaError(f"{root} is no directory")
    if root.name.startswith("dledger-") and (root / "data").is_dir():
        return _dledger_replica(root.parent, root)
    if root.name == "commitlog":
        return _commit_log_replica(root.parent)
    members = sorted(path for path in root.glob("dledger-*") if (path / "data").is_dir())
    if len(members) > 1:
        raise ReplicaError(f"{root} holds {len(members)} members: name one, as {members[0]}")
    if members:
        return _dledger_replica(root, members[0])
    if (root / "commitlog").is_dir():
        return _commit_log_replica(root)
    hint = f"; its {root / 'store'} may be one" if (root / "store").is_dir() else ""
    raise ReplicaError(f"{root} is no replica: expected dledger-<id>/data or commitlog in it{hint}")


def _dledger_replica(root: Path, member: Path) -> Replica:
    own = member / "pydledger"
    is_live = _is_locked(root / "lock")
    # What is told to be committed, then the files, then the mark: of a running member, the files hold what was told
    # before they were listed, and retention moves the mark before it deletes files.
    told = unpack_committed_mark(_content(own / COMMITTED_MARK_FILE_NAME)) if is_live else -1
    checkpoints = _checkpoints(member)
    applied = [checkpoint.applied_index for checkpoint in checkpoints]
    java = _properties(member / "checkpoint")
    files = data_files(member / "data")
    mark_payload = _slots(own / MARK_FILE_NAME)
    mark = unpack_mark(mark_payload) if mark_payload is not None else None
    identity_payload = _slots(own / QUORUM_STATE_FILE_NAME)
    identity = unpack_identity(identity_payload) if identity_payload is not None else None
    size = mark.data_file_size if mark is not None else usual_size(files)
    files, renamed = in_their_places(files, size, Layout.DLEDGER)
    files, strays = without_strays(files, size)
    return Replica(
        name=member.name.removeprefix("dledger-"),
        group=identity.group_uuid.hex()[:16] if identity is not None and identity.group_uuid else "",
        directory=str(root),
        layout=Layout.DLEDGER,
        data_directory=str(member / "data"),
        data_files=files,
        data_file_size=size,
        stray_files=strays,
        renamed_files=renamed,
        is_live=is_live,
        stopped_cleanly=not (root / "abort").exists(),
        mark=mark,
        applied_index=max(applied, default=-1),
        told_committed_index=told,
        java_end_index=java.get("endIndex", -1),
        java_committed_index=java.get("committedIndex", -1),
        deleted_topics=_deleted_topics(checkpoints),
        index_file_mark=_index_file_mark(own),
    )


def min_offsets_of(replica: Replica) -> dict[tuple[bytes, int], int]:
    """By topic and queue id, as the newest checkpoint of a member of ours has them: units before are not read. An
    operator may have had them go while the log still has the messages (cleanUnusedTopic).
    """
    is_plain = replica.layout is Layout.COMMIT_LOG
    checkpoints = _checkpoints(
        Path(replica.directory) / "pydledger" if is_plain else Path(replica.data_directory).parent
    )
    newest = max((checkpoint.applied_index for checkpoint in checkpoints), default=-1)
    found: dict[tuple[bytes, int], int] = {}
    for checkpoint in checkpoints:
        if checkpoint.applied_index == newest:  # an idle member may have two of one index
            for topic, queue_id, min_offset, _ in checkpoint.queues:
                found[topic, queue_id] = max(min_offset, found.get((topic, queue_id), 0))
    return found


def _deleted_topics(checkpoints: Sequence[Checkpoint]) -> tuple[tuple[str, int], ...]:
    newest = max(checkpoints, key=lambda checkpoint: checkpoint.applied_index, default=None)
    return tuple(map(tuple, newest.deleted_topics or ())) if newest is not None else ()


def _checkpoints(member: Path) -> list[Checkpoint]:
    contents = (_content(member / "pydledger" / name) for name in CHECKPOINT_NAMES)
    return [checkpoint for content in contents if (checkpoint := unpack_checkpoint(content)) is not None]


def _commit_log_replica(root: Path) -> Replica:
    files = data_files(root / "commitlog")
    size = usual_size(files)
    files, renamed = in_their_places(files, size, Layout.COMMIT_LOG)
    files, strays = without_strays(files, size)
    return Replica(
        name=root.resolve().name,
        group="",
        directory=str(root),
        layout=Layout.COMMIT_LOG,
        data_directory=str(root / "commitlog"),
        data_files=files,
        data_file_size=size,
        stray_files=strays,
        renamed_files=renamed,
        is_live=_is_locked(root / "lock"),
        stopped_cleanly=not (root / "abort").exists(),
        deleted_topics=_deleted_topics(_checkpoints(root / "pydledger")),
        index_file_mark=_index_file_mark(root / "pydledger" / "pydledger"),
    )


def _index_file_mark(own: Path) -> IndexFileMark | None:
    payload = _slots(own / INDEX_FILE_MARK_NAME)
    return unpack_index_file_mark(payload) if payload is not None else None


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def _slots(path: Path) -> bytes | None:
    """None for no file and for one that cannot be read: a validation tells from the log itself what is there."""
    return newest_payload(_content(path))


def _properties(path: Path) -> dict[str, int]:
    """The numbers of a Java properties file; no file, none. Lines that damage made something else of are none."""
    return {key.decode(): int(value) for key, value in _NUMBER_LINE.findall(_content(path))}


def _is_locked(path: Path) -> bool:
    """Whether a process holds the store's lock, byte 0 of the file."""
    try:
        with path.open("rb") as file:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
            answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, asked)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)
