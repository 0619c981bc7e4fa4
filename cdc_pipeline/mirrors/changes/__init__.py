"""Which row changes and statements a cut applies, in which order: new, late, redelivered, pending.

Imports `settings` and `model`. Planning, merge, cuts and operations import it. Plans nothing and writes to no mirror.
"""
