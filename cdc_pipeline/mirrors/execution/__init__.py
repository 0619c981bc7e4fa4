"""Carries out the steps of a cut as Delta commits. A commit that exists already is skipped.

Never imports `planning`. Cuts and operations import it.
"""
