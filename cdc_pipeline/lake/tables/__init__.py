"""Tables of the lake that several rooms read: one module each, with schema and access.

Imports the rest of `lake`. `sources`, `dialects` and `mirrors` import it.
"""
