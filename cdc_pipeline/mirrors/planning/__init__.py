"""Turns DDL events and groups of rows into the steps of a cut. Plain Python, without a Spark session.

Never imports `merge` or `execution`. Cuts and operations import it.
"""
