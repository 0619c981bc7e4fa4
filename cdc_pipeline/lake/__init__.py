"""Delta commits and logs; the paths, format, writer lock and catalog of a lake; classification of storage errors.

Imports `spark` and names of `mysql`. Every room that reads or writes a table imports it.
"""
