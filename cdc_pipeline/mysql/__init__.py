"""The language of the upstream: tables, types, DDL and expressions of MySQL, MariaDB and TiDB.

Rooms from the top: expressions, ddl, types, model. Each imports only the rooms after it. Every room above imports mysql; it
imports only `gaps`.
"""
