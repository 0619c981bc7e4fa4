"""The files of a table in a local folder, by the statistics in its log: no file is read."""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deltalake import DeltaTable

Condition: TypeAlias = tuple[str, Literal["=", ">", ">=", "<=", "longer than"], int | str]
"""Column, operator, value. `longer than` compares the length of an array."""
OPERATORS = {"=": operator.eq, ">": operator.gt, ">=": operator.ge, "<=": operator.le}


def is_read_by_path(table: DeltaTable) -> bool:
    """Whether the rows of the table are those of its files: it has no feature such as deletion vectors, and no partitions,
    whose values are in the log only."""
    return bool(table.protocol().min_reader_version == 1 and not table.metadata().partition_columns)


def list_files(table: DeltaTable, all_of: Iterable[Condition] = (), any_of: Sequence[Condition] = ()) -> pa.Table:
    """One row per file that may have rows which meet all conditions of `all_of`, and one of `any_of` if there are any.

    Columns: `path`, `num_records`, and `min.<column>` and `max.<column>` of the columns with statistics.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    found = [_may_meet(files, condition) for condition in all_of]
    if any_of:
        found.append(functools.reduce(pc.or_, (_may_meet(files, condition) for condition in any_of)))
    return files.filter(functools.reduce(pc.and_, found)) if found else files


def _may_meet(files: pa.Table, condition: Condition) -> Any:
    """One boolean per file, true without statistics. Texts are not compared: their bounds may be cut off."""
    column, name, value = condition
    bounds = {"=": ("min", "max"), "<=": ("min",)}.get(name, ("max",))
    known = all(f"{bound}.{column}" in files.column_names for bound in bounds)
    if not isinstance(value, int) or name not in OPERATORS or not known:
        return pa.array([True] * files.num_rows, pa.bool_())
    if name == "=":
        low, high = files[f"min.{column}"], files[f"max.{column}"]
        return pc.fill_null(pc.and_(pc.less_equal(low, value), pc.greater_equal(high, value)), True)
    compare = {">": pc.greater, ">=": pc.greater_equal, "<=": pc.less_equal}[name]
    return pc.fill_null(compare(files[f"{bounds[0]}.{column}"], value), True)
