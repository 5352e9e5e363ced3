"""Two files that Java's DLedger reads at its start, written for it and never read by us.

`currterm` follows each change of term; `checkpoint` is written at a clean stop, after everything it speaks of is
synced. Both are Java properties files.
"""

from disk.disk import Disk
from dledger.core.messages import PeerId
from dledger.entry import Index, Term


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


def curr_term_job(disk: Disk, directory: str, curr_term: Term, curr_vote_for: PeerId | None) -> JavaExportJob:
    """`directory` is the `dledger-<id>` directory."""
    properties = {"voteLeader": curr_vote_for or "", "currTerm": str(curr_term)}
    return JavaExportJob(disk, directory, "currterm", properties)


def checkpoint_job(disk: Disk, directory: str, end_index: Index, committed_index: Index) -> JavaExportJob:
    """`committed_index`: up to which the derived files are synced; Java dispatches only what lies behind it."""
    properties = {"committedIndex": str(committed_index), "endIndex": str(end_index)}
    return JavaExportJob(disk, directory, "checkpoint", properties)
