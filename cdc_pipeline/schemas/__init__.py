"""MySQL's tables as plain values: their columns and types, DDL text to changes, changes to schemas, formulas to Spark SQL.

The rooms, each of which imports only those after it: `effects`, `mysql_expressions`, `ddl` beside `spark_sql`, `types`,
`model`. Imports no other package of ours; every package may import it.
"""
