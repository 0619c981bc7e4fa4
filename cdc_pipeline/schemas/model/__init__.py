"""Values without Spark: names, tables, columns, partitions, changes, gaps, and how much a statement may say.

Imports nothing of ours. Names and fields of these classes are stored in lakes: they stay.
"""
