"""Field rules of messages and schemas of decoded tables, as Pandera models, and the SQL derived from them.

No other package defines a field rule. Imports only `mysql`. `sources`, `dialects`, `mirrors` and `checks` import it.
"""
