"""The Dagster sensors: one requests runs for new offsets, one reloads the definitions for new tables. They start no Spark.

Only `component` imports it.
"""
