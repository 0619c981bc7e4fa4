"""The source `ticdc_storage`: the folder that TiCDC's storage sink writes.

Knows no other source. `component` creates it.
"""
