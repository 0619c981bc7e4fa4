"""DDL events of the stream: which tables each touches, makes or ends, before anything is planned.

Imports `model` and `settings`. Everything above imports it.
"""
