"""Where a plain CommitLog lies."""

from dledger.log.config import LogConfig


class PlainLogConfig(LogConfig, frozen=True, kw_only=True):
    """`directory` is for what is ours alone: Java minds no other directory in a store's root."""

    commit_log_directory: str
    abort_file: str  # there after a stop that was not clean, of ours or of RocketMQ

    @property
    def data_directory(self) -> str:
        return self.commit_log_directory
