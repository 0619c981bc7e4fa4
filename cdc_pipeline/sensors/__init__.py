"""The Dagster sensors: one requests runs for new offsets, one reloads the definitions for new tables, one sends alerts.

They start no Spark. Only `component` imports it.
"""
