"""Merges typed rows into the rows of a small mirror in Arrow: what `merge_rows` does by MERGE, row for row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute as pc

from cdc_pipeline.mirrors.merge.merge_rows import Merged
from cdc_pipeline.mirrors.merge.small_rows import StepRows, as_flags
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState

_Indexes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Rewritten:
    rows: pa.Table
    """All rows of the mirror, in its columns."""
    merged: Merged
    unknown: int = 0
    """How many rows were updated without one of the `absent` columns and were not in the mirror under their key. Without a
    key: how many were to be deleted and were not in the mirror."""


def rewrite_keyed(
    old: pa.Table, rows: StepRows, state: MirrorState, key: Sequence[str], absent: Sequence[str]
) -> Rewritten:
    """As `merge_rows.merge_keyed`. `absent`: columns that some rows lack, for `Rewritten.unknown`."""
    new = _in_columns_of(old, rows, state)
    match = _matches(old.select(key), new.select(key))
    keeps_deleted = state.has_soft_delete
    deleted, update_only, moved = (rows.flag(name) for name in ("deleted", "update_only", "moved"))
    was_deleted = as_flags(old[DELETED]) if keeps_deleted else np.zeros(len(old), dtype=bool)
    places = np.flatnonzero(match >= 0)
    matching = match[places]
    is_matched, was_live = np.zeros(len(new), dtype=bool), np.zeros(len(new), dtype=bool)
    is_matched[matching] = True
    was_live[matching] = ~was_deleted[places]
    applies = ~(update_only[matching] & was_deleted[places]) if keeps_deleted else ~deleted[matching]
    updated = new.take(matching[applies])
    former = old.take(places[applies])
    for name in old.column_names:
        if _source_of(name, rows, state) is None:
            updated = _with(updated, name, former[name])
        elif name in rows.sent:
            takes = (rows.has(name) | moved)[matching[applies]]
            updated = _with(updated, name, pc.if_else(pa.array(takes), updated[name], former[name]))
    is_new = ~is_matched & ~update_only & (keeps_deleted | ~deleted)
    stays = match < 0
    if keeps_deleted:
        stays[places[~applies]] = True
    result = pa.concat_tables([old.filter(stays), updated, new.take(np.flatnonzero(is_new))])
    if keeps_deleted:
        counts = (~deleted & ~was_live).sum(), (~deleted & was_live).sum(), (deleted & was_live).sum()
    else:
        counts = is_new.sum(), applies.sum(), (~applies).sum()
    return Rewritten(result, Merged(*map(int, counts)), _count_unknown(rows, was_live, absent))


def _count_unknown(rows: StepRows, was_live: npt.NDArray[np.bool_], absent: Sequence[str]) -> int:
    """As `merge_rows.count_unknown_rows`."""
    lacks = np.zeros(len(rows), dtype=bool)
    for name in absent:
        lacks |= ~rows.has(name)
    has_rest = np.asarray(rows.flags["key_only_since"].is_null())
    is_known = was_live & ~rows.flag("moved")
    return int((lacks & ~rows.flag("deleted") & has_rest & ~is_known).sum())


def rewrite_keyless(old: pa.Table, rows: StepRows, state: MirrorState) -> Rewritten:
    """As `merge_rows.merge_keyless`."""
    new, images = _in_columns_of(old, rows, state), state.schema.column_names
    delta = rows.flags["delta"].to_numpy()
    removals = np.flatnonzero(delta < 0)
    match = _matches(old.select(images), new.select(images).take(removals))
    if state.has_soft_delete:
        match[as_flags(old[DELETED])] = -1
    places = np.flatnonzero(match >= 0)
    # the oldest of equal rows goes first, and NULL is older than any value
    ages = zip(*(old[name].take(places).to_pylist() for name in state.metadata), strict=True)
    keys = [tuple((part is not None, part) for part in age) for age in ages] or [()] * len(places)
    places = places[sorted(range(len(places)), key=lambda i: (match[places[i]], keys[i]))]
    groups = match[places]
    rank = np.arange(len(groups)) - np.searchsorted(groups, groups)
    stays = np.ones(len(old), dtype=bool)
    stays[places[rank < -delta[removals][groups]]] = False
    added = np.repeat(np.arange(len(new)), np.maximum(delta, 0))
    result = pa.concat_tables([old.filter(stays), new.take(added)])
    deleted = int((~stays).sum())
    return Rewritten(result, Merged(inserted=len(added), deleted=deleted), int(-delta[removals].sum()) - deleted)


def _in_columns_of(old: pa.Table, rows: StepRows, state: MirrorState) -> pa.Table:
    """The rows as they are in the mirror; columns that no message writes are NULL."""
    found = [_source_of(name, rows, state) for name in old.column_names]
    columns = [pa.nulls(len(rows)) if values is None else values for values in found]
    return pa.table(
        [values.cast(field.type) for values, field in zip(columns, old.schema, strict=True)], schema=old.schema
    )


def _source_of(name: str, rows: StepRows, state: MirrorState) -> pa.ChunkedArray | None:
    """The values for a column of the mirror. None if the mirror keeps it after upstream has dropped it, or somebody added
    it."""
    if name in rows.values.column_names:
        return rows.values[name]
    if name in state.metadata:
        return rows.flags[name]
    return rows.flags["deleted"] if name == DELETED and state.has_soft_delete else None


def _with(table: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


def _matches(old: pa.Table, new: pa.Table) -> _Indexes:
    """For each row of `old` the row of `new` with the same values, or -1. NULL equals NULL, as of two zero dates in keys."""
    found, wanted = np.zeros(len(old), dtype=np.int64), np.zeros(len(new), dtype=np.int64)
    for name in new.column_names:
        before, after = (_comparable(table[name]) for table in (old, new))
        values = pc.unique(after)
        codes = pc.index_in(before, value_set=values).fill_null(-1).to_numpy().astype(np.int64)
        wanted = wanted * len(values) + pc.index_in(after, value_set=values).to_numpy()
        found = np.where((found < 0) | (codes < 0), -1, found * len(values) + codes)
        # numbered again, so that the numbers stay below the square of the number of rows
        known, wanted = np.unique(wanted, return_inverse=True)
        places = np.minimum(np.searchsorted(known, found), len(known) - 1)
        found = np.where(known[places] == found, places, -1) if len(known) else np.full(len(old), -1)
    places = np.empty(wanted.max(initial=-1) + 1, dtype=np.int64)
    places[wanted] = np.arange(len(new))
    return np.where(found < 0, -1, places[found]) if len(places) else np.full(len(old), -1, dtype=np.int64)


def _comparable(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """-0.0 equals 0.0."""
    return pc.add(values, pa.scalar(0.0, values.type)) if pa.types.is_floating(values.type) else values
