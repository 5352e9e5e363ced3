"""PySpark over replicated logs: entries as a table, and the proof that replicas agree.

Spark finds the format `dledger` here without registration, by the package's name and `DefaultSource`. Importing the
package imports neither pyspark nor pyarrow: what needs them is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark_dledger.data_source import DledgerDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    if name == "DefaultSource":
        from pyspark_dledger.data_source import DledgerDataSource

        return DledgerDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
