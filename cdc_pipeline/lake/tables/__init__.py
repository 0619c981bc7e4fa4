"""Facts of tables of ours that more than one room needs: their schema, and how they are read.

Imports the rest of `lake`. Decoding, sources and mirrors import it in place of each other.
"""
