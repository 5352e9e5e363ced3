"""Names of a store's directories, under storePathRootDir."""

from typing import Final

CONSUME_QUEUES: Final = "consumequeue"
BATCH_CONSUME_QUEUES: Final = "batchconsumequeue"
