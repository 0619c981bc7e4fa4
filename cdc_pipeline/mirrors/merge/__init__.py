"""Turns the net changes of a step into typed, masked rows of their mirror, and merges them in one commit.

Never imports `planning`. Execution, cuts and checks import it.
"""
