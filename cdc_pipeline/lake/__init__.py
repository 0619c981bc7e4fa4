"""Delta commits and their logs; the paths, format, lock and catalog of a lake; the errors of a disk that fails.

Imports `spark` and names of `mysql`. Every room that reads or writes a table imports it.
"""
