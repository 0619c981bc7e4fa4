"""The field rules of messages and the schemas of our tables, as Pandera models, and the SQL derived from them.

The only place of a field rule. Imports only `mysql`. `sources`, `dialects` and `checks` import it.
"""
