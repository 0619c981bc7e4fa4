"""Mirrors made again from raw or from the change log; dead letters that are released; upkeep of tables.

Stands above all other rooms of `mirrors` and may import each. Only `assets` imports it.
"""
