"""Records of a source, and which of them are new: `source` says what one is; `kafka`, `storage`, `captures` are such.

Imports `dialects` for what a value's bytes may be, and what is below. `decoding` and what is above import it.
"""
