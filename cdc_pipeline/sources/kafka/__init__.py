"""The source `kafka`: topics of a broker, read from explicit offset to explicit offset; client settings and secrets.

Knows no other source. `component` creates it.
"""
