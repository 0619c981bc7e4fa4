"""Mirrors by name: tables and views in Hive or Glue, reconciled with the newest cut (docs/lakes.md).

Imports `mirrors` and the rooms below. `pipeline.py`, `assets` and `component` import it.
"""
