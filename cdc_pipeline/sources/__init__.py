"""Reads the records of a source into the raw table. One folder per source, each with `source.py`; the rest is shared.

Imports `contracts`, `lake` and the rooms below. `dialects`, `mirrors`, `assets` and `component` import it.
"""
