"""Reduces row changes to net changes, converts them to typed and masked rows, and merges these into their mirror.

Never imports `planning`. Execution, cuts and checks import it.
"""
