"""Dagster asset checks, one module each: a check reads what a stage wrote and says whether a promise holds.

Writes no table. Only `assets` and `component` import it.
"""
