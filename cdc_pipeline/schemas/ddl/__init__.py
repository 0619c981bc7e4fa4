"""DDL statements: text to changes (`ddl_*`: sqlglot's tokens, our grammar), and the schema that follows (`evolution`).

Imports `model` and `types`. A statement that the grammar does not know becomes `NotSupported`, never a guess.
"""
