"""Two properties files that Java's DLedger keeps beside its log. We write them so that it can go on after us, and read
them to learn that it did.

`currterm` follows each change of term; `checkpoint` is written at a clean stop, after everything it speaks of is
synced. A `currterm` of ours has a key more, which Java drops with its first vote.
"""

from typing import Final

import msgspec

from disk.disk import Disk, DiskError
from dledger.entry import Index, Term

_CURR_TERM: Final = "currterm"
_CHECKPOINT: Final = "checkpoint"
_WRITTEN_BY: Final = "writtenBy"
_PYDLEDGER: Final = "pydledger"


class JavaRun(msgspec.Struct, frozen=True):
    """Java's DLedger was the last to run on a directory."""

    term: Term  # none of its entries has a later one
    voted_for: str  # in that term: itself, if it led in it; empty for nobody
    committed_index: Index  # as it remembers it: more may be committed; -1: not at all


def find_java_run(disk: Disk, directory: str) -> JavaRun | None:
    """`directory` is the `dledger-<id>` directory. None when Java has not run there since we last did, if ever."""
    curr_term = _read(disk, f"{directory}/{_CURR_TERM}", "currTerm")
    if curr_term is None or curr_term.get(_WRITTEN_BY) == _PYDLEDGER:
        return None
    checkpoint = _read(disk, f"{directory}/{_CHECKPOINT}", "committedIndex")
    committed_index = int(checkpoint["committedIndex"]) if checkpoint is not None else -1
    return JavaRun(Term(int(curr_term["currTerm"])), curr_term.get("voteLeader", ""), Index(committed_index))


def _read(disk: Disk, path: str, number_key: str) -> dict[str, str] | None:
    """The properties of the file, or of the one before it where no sound one is left."""
    for candidate in (path, f"{path}.bak"):
        if not disk.exists(candidate):
            continue
        try:
            lines = disk.read_file(candidate).decode("ascii", "replace").splitlines()
        except DiskError:
            continue
        pairs = (line.partition("=") for line in lines if not line.startswith("#"))
        properties = {key.strip(): value.strip() for key, _, value in pairs}
        if properties.get(number_key, "").removeprefix("-").isdecimal():
            return properties
    return None


class JavaExportJob:
    """Writes one properties file anew. A crash leaves the old one or the new one."""

    __slots__ = ("_content", "_directory", "_disk", "_name")
    kind = "java-export"

    def __init__(self, disk: Disk, directory: str, name: str, properties: dict[str, str]) -> None:
        self._disk = disk
        self._directory = directory
        self._name = name
        self._content = "".join(f"{key}={value}\n" for key, value in properties.items()).encode("ascii")

    def run(self) -> None:
        # Not beside the file: Java knows every name in its directory.
        temporary = f"{self._directory}/pydledger/{self._name}.tmp"
        file = self._disk.open(temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(self._content, 0)
            file.fdatasync()
        finally:
            file.close()
        self._disk.rename(temporary, f"{self._directory}/{self._name}")
        self._disk.sync_directory(self._directory)


def curr_term_job(disk: Disk, directory: str, curr_term: Term) -> JavaExportJob:
    """`directory` is the `dledger-<id>` directory.

    Java goes on in the term that it finds, in which somebody may have led here: so it finds the next one, not voted in.
    """
    properties = {"voteLeader": "", "currTerm": str(curr_term + 1), _WRITTEN_BY: _PYDLEDGER}
    return JavaExportJob(disk, directory, _CURR_TERM, properties)


def checkpoint_job(disk: Disk, directory: str, end_index: Index, committed_index: Index) -> JavaExportJob:
    """`committed_index`: up to which the derived files are synced; Java dispatches only what lies behind it."""
    properties = {"committedIndex": str(committed_index), "endIndex": str(end_index)}
    return JavaExportJob(disk, directory, _CHECKPOINT, properties)
