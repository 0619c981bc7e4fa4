"""The lake: its paths, format and lock, commits of Delta tables, their logs, and what a disk that fails means.

Imports `spark`, and of `schemas` the names of tables. Every room that reads or writes a table imports it.
"""
