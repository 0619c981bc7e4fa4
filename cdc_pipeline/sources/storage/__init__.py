"""The folder of TiCDC's storage sink as a source: which files are whole, in which order, and their lines as records.

Stands on the other modules of `sources`, which do not know it. `component.fields.source` declares it.
"""
