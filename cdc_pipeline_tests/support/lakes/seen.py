"""Collects the rows of a cut's tables."""

from __future__ import annotations

from typing import Any

import cdc_pipeline

Rows = dict[str, list[tuple[Any, ...]]]


def seen(tables: cdc_pipeline.CutTables) -> Rows:
    assert all(name.database == "db" for name in tables)
    return {
        name.table: sorted(tuple(row)[:-4] for row in frame.collect())  # without the metadata columns
        for name, frame in tables.items()
    }
