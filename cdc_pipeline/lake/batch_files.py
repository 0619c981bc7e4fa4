"""The rows of a table's newest batches, read from their files without a query on the table's log.

Delta keeps the files of each version in a DataFrame. For each batch it reads the log again in Spark jobs, and compiles a new
query on the files' statistics, because that contains the batch's numbers: half a second, even for 50 records. delta-rs
lists files and statistics in milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from cdc_pipeline.lake.file_statistics import list_own_files, spark_schema
from cdc_pipeline.lake.paths import escape_glob, is_for_delta_rs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from cdc_pipeline.lake.file_statistics import Condition

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
    if not is_for_delta_rs(path):
        return None
    of_batches: list[Condition] = [("batch_id", ">=", first), ("batch_id", "<=", last)]
    try:
        table = DeltaTable(path)
        listed = list_own_files(table, of_batches, [(column, ">", bound) for column, bound in above.items()])
        schema = spark_schema(table)
    except (DeltaError, OSError):
        return None  # Delta's own error says what is wrong
    if listed is None:
        return None
    files = listed.to_pylist()
    found = [Path(path, file["path"]) for file in files]
    if len(found) > _MOST_FILES or not all(map(Path.is_file, found)):
        return None
    return BatchFiles(schema, tuple(escape_glob(str(file)) for file in found), _has_others(files, first, last))


def _has_others(files: list[dict[str, Any]], first: int, last: int) -> bool:
    spans = [(file.get("min.batch_id"), file.get("max.batch_id")) for file in files]
    return any(low is None or high is None or low < first or high > last for low, high in spans)
