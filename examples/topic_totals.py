"""Counts of a topic by windows of time, into another topic, with Spark: those of all windows that are over by now.

pip install 'pydledger[spark]'
mq admin updateTopic -n 127.0.0.1:9876 -c DefaultCluster -t ClockChangesByMonth
python examples/topic_totals.py 127.0.0.1:9876 ClockChanges ClockChangesByMonth run/clock_totals
mq consume -n 127.0.0.1:9876 --topic ClockChangesByMonth --group readers --from first --idle-s 2
mq admin consumerProgress -n 127.0.0.1:9876 -g clock-totals
"""

import sys

from pyspark.sql.functions import window

from pyspark_dledger.progress_committer import ProgressCommitter
from pyspark_dledger.spark_session import spark_session

namesrv, topic, counts_topic, directory = sys.argv[1:]
with spark_session() as spark, ProgressCommitter(namesrv, "clock-totals", "totals") as committer:
    spark.streams.addListener(committer)
    changes = (
        spark.readStream.format("dledger")
        .options(namesrv=namesrv, subscribe=topic, startingOffsets="earliest", columns="tags,body")
        .load()
        .selectExpr("tags", "to_timestamp(split(string(body), '\\t')[2]) AS at")
    )
    # The counts of windows that are not over yet are Spark's state, in the checkpoint.
    counts = (
        changes.withWatermark("at", "1 day").groupBy(window("at", "30 days"), "tags").count()
        .selectExpr("concat_ws(' ', date(window.start), tags) AS name", "count")
        .selectExpr("name AS keys", "name AS sharding_key", "concat_ws(' ', name, count) AS body")
    )  # fmt: skip
    query = (
        counts.writeStream.format("dledger")
        .queryName("totals")
        .options(namesrv=namesrv, topic=counts_topic, checkpointLocation=f"{directory}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    new = sum(progress["numInputRows"] for progress in query.recentProgress)
    print(f"{new} new messages of {topic} are counted in {counts_topic}")
