"""DDL events and counts of rows become steps: pure Python that reads no table and writes none.

Never imports `execution`. Imports `changes`, `window`, `ddl`, `settings` and `model`; `stored_plans` and `cuts` import it.
"""
