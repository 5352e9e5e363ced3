"""What Spark asks of a stream source for one batch, asked in this process: an end, its tasks, their rows."""

import json
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

Rows = list[tuple[Any, ...]]


def read_batch(reader: DataSourceStreamReader, checkpoint: str | None) -> tuple[str, Rows]:
    """All that there is. `checkpoint`: the end of the batch before, None at the very first start; the new one is
    returned."""
    start = reader.initialOffset() if checkpoint is None else json.loads(checkpoint)
    end = json.dumps(reader.latestOffset(start, ReadAllAvailable()))
    rows: Rows = []
    for task in reader.partitions(start, json.loads(end)):
        for batch in reader.read(task):
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return end, rows
