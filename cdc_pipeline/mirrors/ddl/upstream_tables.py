"""Which tables upstream has, and which of them each mirror is of: both by upstream's own names."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as F

from cdc_pipeline.errors import DeclarationError
from cdc_pipeline.mirrors.ddl.events import begun_names, ended_names
from cdc_pipeline.schemas.model.changes import (
    DropDatabase,
)
from cdc_pipeline.schemas.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame

    from cdc_pipeline.mirrors.ddl.events import DdlEvent
    from cdc_pipeline.mirrors.settings.selection import TableSelection
    from cdc_pipeline.schemas.model.changes import SchemaChange


def last_rows(log: DataFrame) -> dict[TableName, int]:
    """The tables that have row changes here, each with the greatest `commit_ts`."""
    rows = log.groupBy("database", "table").agg(F.max("commit_ts").alias("last")).collect()
    return {TableName(row["database"], row["table"]): row["last"] for row in rows}


def existing_tables(rows: Mapping[TableName, int], past: Iterable[DdlEvent]) -> set[TableName]:
    """The tables that were there after all these statements, in order, and rows, as far as they tell."""
    there: set[TableName] = set()
    ended: dict[TableName, int] = {}
    for event in past:
        for change in event.changes:
            gone = _ended(change, there | rows.keys())
            there.difference_update(gone)
            ended.update(dict.fromkeys(gone, event.commit_ts))
            there.update(begun_names(change))
    return there | {name for name, last in rows.items() if last > ended.get(name, -1)}


def _ended(change: SchemaChange, known: Iterable[TableName]) -> list[TableName]:
    if isinstance(change, DropDatabase):
        return [name for name in known if name.database == change.database]
    return list(ended_names(change))


Sources: TypeAlias = "Mapping[TableName, tuple[TableName, ...]]"
"""Upstream's tables by mirror, in order of their names: one, or several that are merged."""


def sources_with(
    known: Sources, names: Iterable[TableName], selection: TableSelection
) -> dict[TableName, tuple[TableName, ...]]:
    """`known` with those of the names that are in.

    Raises DeclarationError where two tables would have one mirror and are not to be merged: their rows must never mix.
    """
    found = dict(known)
    for name in sorted(set(names)):
        if not selection.is_in(name):
            continue
        mirror = selection.routed(name)
        others = found.get(mirror, ())
        if name in others:
            continue
        apart = next((other for other in (name, *others) if not selection.merges(other)), None)
        if others and apart is not None:
            other = others[0]
            raise DeclarationError(
                f"routes: {other} and {name} would both be mirrored as {mirror}, and tables are not merged; nothing was "
                "touched. Route one of them to another name, or exclude it; a route with merge: true for all of them merges"
            )
        found[mirror] = tuple(sorted((*others, name)))
    return found
