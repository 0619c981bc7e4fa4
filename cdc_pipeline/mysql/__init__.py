"""The SQL of the upstream (MySQL, MariaDB, TiDB): tables, types, DDL and expressions.

Packages from the top: expressions, ddl, types, model. Each imports only packages below it. mysql imports only
`gaps`; every package above imports mysql.
"""
