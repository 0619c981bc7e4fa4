"""`Lake`, the handle of a pipeline's tables; Delta commits and logs; paths, format, writer lock and catalog; disk errors.

Imports `spark` and names of `mysql`. Every room that reads or writes a table imports it.
"""
