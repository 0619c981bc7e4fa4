"""MySQL's expressions as Spark SQL text, with a doubt where the two may differ: generated columns, defaults, partitions.

`expressions` is the door, `expression_*` are one module per kind of function. Imports `ddl`, `types` and `model`.
"""
