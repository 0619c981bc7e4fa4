"""Dagster asset checks. A check reads the tables of a stage and reports whether a guarantee holds.

Checks write no tables. Only `assets` and `component` import it.
"""
