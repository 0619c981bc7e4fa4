"""Mirrors of upstream tables: from the change log to a published cut.

Rooms from the top: operations, cuts, execution over merge (both beside planning), changes, settings, model. Each
imports only the rooms after it. No room imports Dagster. `checks`, `assets` and `component` import mirrors.
"""
