"""Streams a topic into a table of files until it is told to end: a program for a test to kill and start again.

python spark_program.py NAMESRV TOPIC DIRECTORY. It ends when DIRECTORY/end is there, and all until then is read.
"""

import sys
from pathlib import Path

from pyspark_dledger.spark_session import spark_session

namesrv, topic, name = sys.argv[1:]
directory = Path(name)
SPARK_CONF = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}
# A task whose worker has died is tried again.
with spark_session("local[2,8]", app_name="pydledger killed", conf=SPARK_CONF) as spark:
    messages = (
        spark.readStream.format("dledger")
        .options(namesrv=namesrv, subscribe=topic, startingOffsets="earliest")
        .options(columns="keys,queue_id,queue_offset,body", minPartitions="8")
        .load()
    )
    query = (
        messages.writeStream.format("parquet")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .start(str(directory / "table"))
    )
    while not (directory / "end").exists():
        query.awaitTermination(0.2)
        if query.lastProgress is not None:
            (directory / "batch").write_text(str(query.lastProgress["batchId"]))
    query.processAllAvailable()
    query.stop()
