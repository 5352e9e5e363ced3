"""Where a ledger lies and how large its files are."""

import msgspec

from dledger.entry import BLANK_HEADER_SIZE, ENTRY_HEADER_SIZE, INDEX_UNIT_SIZE, entry_size_max


class LogConfig(msgspec.Struct, frozen=True, kw_only=True):
    """`directory` is the `dledger-<id>` directory: data/ and index/ as Java knows them, and pydledger/ with ours."""

    directory: str
    # Equal on all members, for positions are: a group constant. 1 GiB is RocketMQ's default.
    data_file_size: int = 1024 * 1024 * 1024
    # DLedger's default: 5,242,880 units.
    index_file_size: int = 5_242_880 * INDEX_UNIT_SIZE
    # Space is found ahead of the writer, so that a full disk refuses an append instead of breaking one.
    allocate_step: int = 64 * 1024 * 1024
    # Memory for entries that need no disk read. Enough for a follower that is a second behind, and for pulls that wait.
    recent_bytes_max: int = 16 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.data_file_size <= ENTRY_HEADER_SIZE + BLANK_HEADER_SIZE:
            raise ValueError(f"data_file_size={self.data_file_size}: too small for any entry")
        if self.index_file_size <= 0 or self.index_file_size % INDEX_UNIT_SIZE:
            raise ValueError(f"index_file_size={self.index_file_size}: not a multiple of {INDEX_UNIT_SIZE}")
        if self.allocate_step <= 0 or self.recent_bytes_max < 0:
            raise ValueError("allocate_step must be above 0, recent_bytes_max not below 0")

    @property
    def entry_size_max(self) -> int:
        return entry_size_max(self.data_file_size)

    @property
    def data_directory(self) -> str:
        return f"{self.directory}/data"

    @property
    def index_directory(self) -> str:
        return f"{self.directory}/index"

    @property
    def own_directory(self) -> str:
        """Everything that Java would refuse or misread in its own directories."""
        return f"{self.directory}/pydledger"
