"""Rewriting a small mirror against a model in Python, which keeps one row after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from cdc_pipeline.mirrors.merge.merge_rows import Merged
from cdc_pipeline.mirrors.merge.rewrite_rows import rewrite_keyed, rewrite_keyless
from cdc_pipeline.mirrors.merge.small_rows import StepRows
from cdc_pipeline.mirrors.model.state import METADATA, MirrorState
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema

_COLUMNS = {"d": pa.date32(), "f": pa.float64(), "s": pa.string(), "b": pa.binary(), "v": pa.int16()}
_SCHEMA = TableSchema(tuple(Column(name, MySqlType("int")) for name in _COLUMNS))
_KEY = ("d", "f", "s", "b")
_METADATA = dict(zip(METADATA.names, (pa.int64(), pa.string(), pa.int32(), pa.int64()), strict=True))
_DAYS = (None, date(2024, 1, 2), date(2024, 1, 3))
_KEYS = st.tuples(*map(st.sampled_from, (_DAYS, (0.0, -0.0, 1.5), ("", "a"), (b"", b"a\0"))))
_VALUES = st.sampled_from((None, 0, 1))
_AGES = st.tuples(st.sampled_from((None, 1, 2)), st.just("t"), st.just(0), st.integers(0, 3))


@dataclass(frozen=True)
class _Change:
    key: tuple[Any, ...]
    value: int | None
    age: tuple[Any, ...]
    deleted: bool
    update_only: bool
    moved: bool
    starts_row: bool
    is_sent: bool
    delta: int


_CHANGES = st.builds(
    _Change,
    _KEYS,
    _VALUES,
    _AGES,
    *(st.booleans(),) * 5,
    st.integers(-2, 3),
)


def _state(*, soft_delete: bool) -> MirrorState:
    key = _KEY if soft_delete else None
    return MirrorState(TableName("db", "t"), "id", _SCHEMA, soft_delete_key=key)


def _row(
    key: tuple[Any, ...], value: int | None, kept: str | None, age: tuple[Any, ...], *mark: bool
) -> tuple[Any, ...]:
    return (*key, value, kept, *age, *mark)


def _mirror(rows: Iterable[tuple[Any, ...]], state: MirrorState) -> pa.Table:
    deleted = {"_deleted": pa.bool_()} if state.has_soft_delete else {}
    return _table(rows, {**_COLUMNS, "k": pa.string(), **_METADATA, **deleted})


def _table(rows: Iterable[tuple[Any, ...]], types: Mapping[str, Any]) -> pa.Table:
    columns = zip(*rows, strict=True) if (rows := list(rows)) else ([] for _ in types)
    return pa.table({name: pa.array(cells, types[name]) for name, cells in zip(types, columns, strict=True)})


def _step_rows(changes: list[_Change]) -> StepRows:
    values = _table(((*change.key, change.value) for change in changes), _COLUMNS)
    flags = {
        "deleted": [change.deleted for change in changes],
        "update_only": [change.update_only for change in changes],
        "moved": [change.moved for change in changes],
        "replaces_row": [change.starts_row for change in changes],
    }
    table = {name: pa.array(cells, pa.bool_()) for name, cells in flags.items()}
    ages = _table((change.age for change in changes), _METADATA)
    table |= dict(zip(_METADATA, ages.columns, strict=True))
    table["delta"] = pa.array([change.delta for change in changes], pa.int64())
    table["key_only_since"] = pa.nulls(len(changes), pa.int64())
    return StepRows(values, pa.table(table), {"v": np.array([change.is_sent for change in changes], dtype=bool)}, {})


def _found(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


@given(
    st.dictionaries(_KEYS, st.tuples(_VALUES, _AGES, st.booleans()), max_size=6),
    st.lists(_CHANGES, max_size=6, unique_by=lambda change: change.key),
    st.booleans(),
)
def test_keyed(old: dict[Any, Any], changes: list[_Change], soft_delete: bool) -> None:
    state = _state(soft_delete=soft_delete)
    mirror = {key: _row(key, value, "kept", age, *[mark][:soft_delete]) for key, (value, age, mark) in old.items()}
    expected, unknown = dict(mirror), 0
    for change in changes:
        former = mirror.get(change.key)
        has = change.is_sent or (change.starts_row and not change.moved)
        is_live = former is not None and not (soft_delete and former[-1])
        unknown += not (has or change.deleted or (is_live and not change.moved))
        mark = [change.deleted][:soft_delete]
        if former is None:
            if not change.update_only and (soft_delete or not change.deleted):
                expected[change.key] = _row(change.key, change.value, None, change.age, *mark)
        elif change.deleted and not soft_delete:
            del expected[change.key]
        elif not (change.update_only and soft_delete and former[-1]):
            value = change.value if has or change.moved else former[4]
            expected[change.key] = _row(change.key, value, "kept", change.age, *mark)
    result = rewrite_keyed(_mirror(mirror.values(), state), _step_rows(changes), state, _KEY, ["v"])
    assert _found(result.rows) == Counter(expected.values())
    assert result.unknown == unknown
    if not soft_delete:
        counts = result.merged
        assert len(mirror) + counts.inserted - counts.deleted == len(expected)


@given(
    st.lists(st.tuples(_KEYS, _VALUES, _AGES, st.booleans()), max_size=8),
    st.lists(_CHANGES, max_size=5, unique_by=lambda change: (change.key, change.value)),
    st.booleans(),
)
def test_keyless(old: list[tuple[Any, ...]], changes: list[_Change], soft_delete: bool) -> None:
    """The oldest of equal rows are deleted; deleted rows of a mirror that had a key stay."""
    state = _state(soft_delete=soft_delete)
    rows = [_row(key, value, "kept", age, *[mark][:soft_delete]) for key, value, age, mark in old]
    expected, removed = list(rows), 0
    for change in changes:
        image = (*change.key, change.value)
        equal = [row for row in rows if row[:5] == image and not (soft_delete and row[-1])]
        equal.sort(key=lambda row: [(part is not None, part) for part in row[6:10]])
        for row in equal[: max(0, -change.delta)]:
            expected.remove(row)
            removed += 1
        mark = [change.deleted][:soft_delete]
        expected += [_row(change.key, change.value, None, change.age, *mark)] * change.delta
    added = sum(max(0, change.delta) for change in changes)
    result = rewrite_keyless(_mirror(rows, state), _step_rows(changes), state)
    assert _found(result.rows) == Counter(expected)
    assert result.merged == Merged(inserted=added, deleted=removed)
    assert result.unknown == sum(max(0, -change.delta) for change in changes) - removed
