"""Messages per second and topic, as a picture, from the store directories of a group's members.

pip install 'pydledger[spark]' matplotlib
python examples/entries_chart.py messages.png run/cluster/n0/store [DIR …]
"""

import sys

import matplotlib.pyplot as plt
from pyspark.sql.functions import date_trunc, max, substring

from pyspark_dledger.spark_session import spark_session

picture, *directories = sys.argv[1:]
columns = "replica,topic,kind,store_timestamp"
with spark_session() as spark:
    entries = spark.read.format("dledger").option("columns", columns).load(directories)
    messages = entries.where("kind = 'message'").select(
        "replica",
        substring("topic", 1, 24).alias("topic"),
        date_trunc("second", "store_timestamp").alias("second"),
    )
    counts = messages.groupBy("replica", "topic", "second").count()
    # Each replica holds every message; one may lag behind.
    counts = counts.groupBy("topic", "second").agg(max("count").alias("messages")).toPandas()
table = counts.pivot(index="second", columns="topic", values="messages").asfreq("s").fillna(0)
table.plot.area(figsize=(11, 5), linewidth=0, cmap="tab20", ylabel="messages per second", xlabel="")
plt.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
plt.savefig(picture, bbox_inches="tight", dpi=120)
