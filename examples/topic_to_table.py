"""A topic into a table of Parquet files, with Spark: what is there now, and at the next run what came since.

pip install 'pydledger[spark]'
python examples/topic_to_table.py 127.0.0.1:9876 ClockChanges run/clock_changes
"""

import sys

from pyspark_dledger.spark_session import spark_session

namesrv, topic, directory = sys.argv[1:]
columns = "queue_id,queue_offset,keys,tags,store_timestamp,body"
with spark_session() as spark:
    messages = (
        spark.readStream.format("dledger")
        .options(namesrv=namesrv, subscribe=topic, startingOffsets="earliest", columns=columns)
        .load()
    )
    query = (
        messages.writeStream.format("parquet")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start(f"{directory}/table")
    )
    query.awaitTermination()
    new = sum(progress["numInputRows"] for progress in query.recentProgress)
    table = spark.read.parquet(f"{directory}/table")
    print(f"{new} new messages, {table.count()} in the table")
    table.groupBy("tags").count().orderBy("tags").show()
