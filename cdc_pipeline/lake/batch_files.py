"""The rows of a table's newest batches, read from their files without a query on the table's log.

Delta keeps the files of each version in a DataFrame. For each batch it reads the log again in Spark jobs, and compiles a new
query on the files' statistics, because that contains the batch's numbers: half a second, even for 50 records. delta-rs
lists files and statistics in milliseconds.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable
from pyarrow import compute as pc
from pyspark.sql.types import StructType

from cdc_pipeline.lake.paths import escape_glob, is_for_delta_rs

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_FILES = 32
"""Spark lists more paths than these in a job."""


@dataclass(frozen=True)
class BatchFiles:
    """Some files of a table with the columns of `schema`."""

    schema: StructType
    paths: tuple[str, ...]
    """Patterns for Spark, one per file."""
    others: bool
    """Whether the files may have rows of other batches than those asked for."""


def find_batch_files(path: str, first: int, last: int, above: Mapping[str, int]) -> BatchFiles | None:
    """The files of the table at `path` that may have rows of the batches from `first` to `last`, and in which one of the
    columns in `above` may be higher than its bound.

    None if Delta has to find them: the table is not in a local folder, has a feature that decides how its files are read
    (such as deletion vectors), or the files are none, too many, elsewhere or missing.
    """
    if not is_for_delta_rs(path) or not DeltaTable.is_deltatable(path):
        return None
    table = DeltaTable(path)
    if table.protocol().min_reader_version > 1:
        return None
    files = pa.table(table.get_add_actions(flatten=True))
    if "min.batch_id" not in files.column_names:
        return None
    files = files.filter(_may_match(files, first, last, above))
    names = files["path"].to_pylist()
    found = [Path(path, unquote(name)) for name in names]
    if not 0 < len(found) <= _MOST_FILES or any(":" in name for name in names) or not all(map(Path.is_file, found)):
        return None
    inside = pc.and_(pc.greater_equal(files["min.batch_id"], first), pc.less_equal(files["max.batch_id"], last))
    schema = StructType.fromJson(json.loads(table.schema().to_json()))
    paths = tuple(escape_glob(str(file)) for file in found)
    return BatchFiles(schema, paths, others=not pc.all(pc.fill_null(inside, False)).as_py())


def _may_match(files: pa.Table, first: int, last: int, above: Mapping[str, int]) -> Any:
    """One boolean per file. Files without statistics may match."""
    conditions = [pc.greater_equal(files["max.batch_id"], first), pc.less_equal(files["min.batch_id"], last)]
    higher = [
        pc.greater(files[f"max.{name}"], bound) for name, bound in above.items() if f"max.{name}" in files.column_names
    ]
    if above and len(higher) == len(above):
        conditions.append(functools.reduce(pc.or_, (pc.fill_null(condition, True) for condition in higher)))
    return functools.reduce(pc.and_, (pc.fill_null(condition, True) for condition in conditions))
