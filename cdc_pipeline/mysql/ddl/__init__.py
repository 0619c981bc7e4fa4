"""Parses DDL statements, and derives the table definition that results. Text in, values out.

Imports `types` and `model`. Expressions, `dialects` and `mirrors` import it.
"""
