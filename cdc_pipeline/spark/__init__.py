"""The Spark session (the one Dagster resource, `session`), its JVM, jars and settings, and helpers for frames.

Imports nothing of ours but `errors`. Every room that has a DataFrame imports it.
"""
