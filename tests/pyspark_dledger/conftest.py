"""One Spark session for all tests that want one, and the recorded stores as directories."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from golden_store import unpack_store
from pyspark.sql import SparkSession

from pyspark_dledger.spark_session import spark_session


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two cores, with the conf that pushdown needs. In the end nothing is left of it."""
    conf = {
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        # For some hundred rows a query the best compiler's work would never pay.
        "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "4",
    }
    with spark_session("local[2]", app_name="pydledger tests", conf=conf) as session:
        directory = Path(session.sparkContext.getConf().get("spark.local.dir") or "")
        assert directory.is_dir()
        yield session
    assert not directory.exists()
    assert not Path("spark-warehouse").exists()


@pytest.fixture(scope="session")
def golden_directory(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A recorded store, unpacked once; nobody writes into it."""
    root = tmp_path_factory.mktemp("golden")

    def unpacked(name: str) -> Path:
        if not (root / name).exists():
            unpack_store(name, root)
        return root / name

    return unpacked
