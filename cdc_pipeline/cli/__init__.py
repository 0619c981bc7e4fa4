"""The command `cdc-pipeline`: runs a pipeline without Dagster's services, and shows what its lake contains.

Nothing imports this room.
"""
