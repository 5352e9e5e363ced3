"""What Spark is told of the limits of a batch. It knows one limit only, so a source keeps to its options itself."""

from __future__ import annotations

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from pyspark_dledger.wire.planning import TriggerLimits


def read_limit(limits: TriggerLimits) -> ReadLimit:
    if limits.size_max is not None:
        return ReadMaxBytes(limits.size_max)
    return ReadAllAvailable() if limits.count_max is None else ReadMaxRows(limits.count_max)


def limits_under(limit: ReadLimit, limits: TriggerLimits) -> TriggerLimits:
    """Those of a batch: a run that Spark wants to read all has none."""
    return TriggerLimits() if isinstance(limit, ReadAllAvailable) else limits
