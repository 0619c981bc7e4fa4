"""Reads exports of Dumpling, mydumper and mysqldump: their tables, their position, and each row as one text per cell.

No Spark, Delta or Dagster. Imports `sources`, `lake.store` and `mysql`.
"""
