"""Plans a cut: DDL events and groups of rows in, steps out. Plain Python, without a Spark session.

Never imports `merge` or `execution`. Cuts and operations import it.
"""
