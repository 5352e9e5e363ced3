"""What faults do to real processes: a run's history, what is wrong with it, which faults come when, the report.

Here are the parts that need no process. What starts, breaks and asks processes is in cluster_tests/. Dev only.
"""
