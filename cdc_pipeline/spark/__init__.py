"""The Spark session (the Dagster resource in `session`), its JVM, jars and settings, and helpers for DataFrames.

Imports `errors`. Every room with a DataFrame imports it.
"""
