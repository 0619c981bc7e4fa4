"""The files of a table in a local folder, by the statistics in its log: no file is read.

Delta keeps the files of each version in a DataFrame. For each batch it reads the log again in Spark jobs, and compiles a new
query on the files' statistics, because that contains the batch's numbers: half a second, even for 50 records. delta-rs
lists files and statistics in milliseconds.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow import compute as pc
from pyspark.sql.types import StructType

from cdc_pipeline.lake.handles import open_table
from cdc_pipeline.lake.paths import escape_glob, is_for_delta_rs, is_local_path

Condition: TypeAlias = tuple[str, Literal["=", ">", ">=", "<=", "longer than"], int | str]
"""Column, operator, value. `longer than` compares the length of an array."""
OPERATORS = {"=": operator.eq, ">": operator.gt, ">=": operator.ge, "<=": operator.le}
_BOUNDS = {">": ("max", pc.greater), ">=": ("max", pc.greater_equal), "<=": ("min", pc.less_equal)}
"""Operator → the bound of a file that shows whether it may have a matching row, and how."""


def open_local_table(path: str) -> DeltaTable | None:
    """The newest version of a table; None if there is none, or if Spark has to read it, whose errors say what is wrong."""
    if not is_for_delta_rs(path):
        return None
    try:
        return open_table(path)
    except (DeltaError, OSError):
        return None


def list_files(table: DeltaTable, all_of: Iterable[Condition] = (), any_of: Sequence[Condition] = ()) -> pa.Table:
    """One row per file that may have rows which meet all conditions of `all_of`, and one of `any_of` if there are any.

    Columns: `path`, `num_records`, and `min.<column>` and `max.<column>` of the columns with statistics.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    found = [_may_meet(files, condition) for condition in all_of]
    if any_of:
        found.append(functools.reduce(pc.or_, (_may_meet(files, condition) for condition in any_of)))
    return files.filter(functools.reduce(pc.and_, found)) if found else files


def list_own_files(
    table: DeltaTable, all_of: Iterable[Condition] = (), any_of: Sequence[Condition] = ()
) -> pa.Table | None:
    """`list_files`, with paths relative to the table's folder, for readers of these files. None if other files, or more than
    the files, decide which rows the table has: shallow clones, features such as deletion vectors, and partitions, whose
    values are in the log only."""
    if table.protocol().min_reader_version > 1 or table.metadata().partition_columns:
        return None
    files = list_files(table, all_of, any_of)
    paths = files["path"].to_pylist()
    if any(":" in path for path in paths):
        return None
    decoded = pa.array(map(unquote, paths), pa.string())
    return files.set_column(files.column_names.index("path"), "path", decoded)


def spark_schema(table: DeltaTable) -> StructType:
    """The table's schema as Spark has it."""
    return StructType.fromJson(json.loads(table.schema().to_json()))


def _may_meet(files: pa.Table, condition: Condition) -> Any:
    """One boolean per file, true without statistics. Texts are not compared: their bounds may be cut off."""
    column, name, value = condition
    if name == "=":
        return pc.and_(_may_meet(files, (column, ">=", value)), _may_meet(files, (column, "<=", value)))
    bound, compare = _BOUNDS.get(name, ("", None))
    if compare is None or not isinstance(value, int) or f"{bound}.{column}" not in files.column_names:
        return pa.array([True] * files.num_rows, pa.bool_())
    return pc.fill_null(compare(files[f"{bound}.{column}"], value), True)


_MOST_FILES = 32
"""Spark lists more paths than these in a job."""


@dataclass(frozen=True)
class BatchFiles:
    """Some files of a table with the columns of `schema`."""

    schema: StructType
    paths: tuple[str, ...]
    """Patterns for Spark, one per file."""
    has_others: bool
    """Whether the files may have rows of other batches than those asked for."""


def find_batch_files(path: str, first: int, last: int, above: Mapping[str, int]) -> BatchFiles | None:
    """The files of the table at `path` that may have rows of the batches from `first` to `last`, and in which one of the
    columns in `above` may be higher than its bound.

    None if Delta has to find them: the table is not in a local folder, delta-rs cannot open it, it has a feature that
    decides how its files are read (such as deletion vectors), or the files are too many, elsewhere or missing.
    """
    table = open_local_table(path)
    if table is None:
        return None
    of_batches: list[Condition] = [("batch_id", ">=", first), ("batch_id", "<=", last)]
    try:
        listed = list_own_files(table, of_batches, [(column, ">", bound) for column, bound in above.items()])
        schema = spark_schema(table)
    except (DeltaError, OSError):
        return None  # Delta's own error says what is wrong
    if listed is None:
        return None
    files = listed.to_pylist()
    found = [f"{path}/{file['path']}" for file in files]
    if len(found) > _MOST_FILES or (is_local_path(path) and not all(Path(file).is_file() for file in found)):
        return None
    return BatchFiles(schema, tuple(map(escape_glob, found)), _has_others(files, first, last))


def _has_others(files: list[dict[str, Any]], first: int, last: int) -> bool:
    spans = [(file.get("min.batch_id"), file.get("max.batch_id")) for file in files]
    return any(low is None or high is None or low < first or high > last for low, high in spans)
