"""Values that every room of mirrors shares: the state of a mirror, the steps of a plan, shards, masks, computed columns.

Imports nothing of `mirrors`. All other rooms import it.
"""
