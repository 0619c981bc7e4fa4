"""Translates scalar MySQL expressions to Spark SQL that gives the same value, or raises an error that names the part.

The top package of `mysql`. `mirrors` imports it.
"""
