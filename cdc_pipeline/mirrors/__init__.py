"""Mirrors: a cut plans what its changes do to each table, carries that out, and publishes one state of all tables.

The rooms, each of which imports only those after it: `rebuild`, `reading`, `cuts`, `stored_plans`, `planning` beside
`execution`, `window` beside `changes`, `ddl`, `settings`, `model`. Knows no Dagster.
"""
