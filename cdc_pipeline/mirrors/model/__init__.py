"""Value types of mirrors: state, steps, DDL events, merged tables, masks, computed columns.

Imports no other package of `mirrors`. All of them import it.
"""
