"""Parses DDL statements and derives the resulting table definitions: text in, values out.

Imports `types` and `model`. Expressions, `dialects` and `mirrors` import it.
"""
