"""Asset checks: each reads what a stage has written and says whether a promise holds.

They read and judge; nothing here writes to a table. Imports `mirrors` and what is below; only `assets` and `component`
import it.
"""
