"""What a change of a table does to rows that are there: which values it converts or loses, which rows go with a partition.

Stands above the other rooms of `schemas` and may import each. Only `mirrors` imports it.
"""
