"""Maps MySQL types to Spark types, and the text values of messages to typed values.

Imports only `model`. `ddl`, `expressions`, `dialects` and `mirrors` import it.
"""
