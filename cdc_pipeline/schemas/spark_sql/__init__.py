"""Spark SQL that a pipeline's file has (`computed`): which columns it names, which functions and types it may use.

Imports `types`. Only `mirrors.model` imports it.
"""
