"""MySQL types as Spark types, and the texts of messages as values of these types.

Imports only `model`. Expressions, `dialects` and `mirrors` import it.
"""
