"""Dagster assets and jobs of a pipeline: each calls one stage and reports its metadata.

Imports every room below. Only `component` and `sensors` import it.
"""
