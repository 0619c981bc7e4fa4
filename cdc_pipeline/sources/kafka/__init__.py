"""The source `kafka`: topics of a broker, read between explicit offsets; client settings and secrets.

Knows no other source. `component` creates it.
"""
