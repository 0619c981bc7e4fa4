"""Translates scalar expressions of MySQL to Spark SQL with the same value, or refuses and names the part.

The top room of mysql. `mirrors` imports it.
"""
