"""Runs the steps of a cut as Delta commits. A commit that the table already contains is skipped.

Never imports `planning`. Cuts and operations import it.
"""
