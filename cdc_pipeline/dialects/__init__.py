"""A record as exactly one kind: one module per dialect with its forms and columns; `decode` asks which one it is.

Imports `contracts`, `schemas`, `lake` and `spark`. Knows no source and no mirror: those import it, and so do
`decoding` and `checks`.
"""
