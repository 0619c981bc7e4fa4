"""Reads and writes the lake's control tables, such as `batches` and `consistent_cuts`: a few rows of the driver.

In local folders delta-rs (`deltalake`) does it without a Spark job: an append takes some 30 ms instead of 400. On other file
systems Spark does it, because delta-rs would need their credentials in its own form; and in folders whose names delta-rs
would change (`paths.is_for_delta_rs`). The tables are the same: each side reads what the other one wrote. Only Spark writes
checksum files beside its commits, so after a commit of delta-rs Spark has to read the log itself.
"""

from __future__ import annotations

import operator
import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from pyarrow.parquet import filters_to_expression  # type: ignore[import-untyped]
from pyspark.sql import functions as F

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.delta import append_once, committed_version, overwrite_once
from cdc_pipeline.lake.delta_log import require_intact_logs
from cdc_pipeline.lake.faults import damaged_table
from cdc_pipeline.lake.paths import is_for_delta_rs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.lake.delta import Commit
    from cdc_pipeline.lake.lake import Lake

Condition: TypeAlias = tuple[str, Literal["=", ">", ">=", "<="], int | str]
"""Column, operator, value."""
_Mode: TypeAlias = Literal["append", "overwrite"]
_OPERATORS = {"=": operator.eq, ">": operator.gt, ">=": operator.ge, "<=": operator.le}
_MOST_CONFLICTS = 20


def append_rows(lake: Lake, table: str, rows: pa.Table, commit: Commit) -> None:
    """Appends the rows, unless the table contains the commit or a later one of the same writer. Creates the table."""
    _write(lake, table, rows, commit, "append")


def overwrite_rows(lake: Lake, table: str, rows: pa.Table, commit: Commit) -> None:
    """Replaces all rows and the schema, unless the table contains the commit or a later one of the same writer."""
    _write(lake, table, rows, commit, "overwrite")


def read_rows(lake: Lake, table: str, *where: Condition, columns: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The rows that meet all conditions, in no defined order. Structs and maps are dicts. Empty if there is no table.

    Raises LakeError if a file of the table is missing or damaged.
    """
    path = lake.paths.table(table)
    if is_for_delta_rs(path):
        parts = _local_parts(path, where, columns)
        return [row for part in parts for row in part.to_pylist(maps_as_pydicts="strict")]
    frame = lake.read_if_exists(table)
    if frame is None:
        return []
    return [row.asDict(recursive=True) for row in _matching(frame, where).select(*columns or frame.columns).collect()]


def read_maxima(
    lake: Lake, table: str, by: tuple[str, ...], value: str, *where: Condition
) -> dict[tuple[Any, ...], int]:
    """The highest `value` for each combination of the columns `by`. For tables of many rows, which are read in parts."""
    path = lake.paths.table(table)
    if not is_for_delta_rs(path):
        frame = lake.read_if_exists(table)
        groups = [] if frame is None else _matching(frame, where).groupBy(*by).agg(F.max(value)).collect()
        return {tuple(group[:-1]): group[-1] for group in groups}
    maxima: dict[tuple[Any, ...], int] = {}
    for part in _local_parts(path, where, [*by, value]):
        groups = pa.Table.from_batches([part]).group_by(list(by)).aggregate([(value, "max")])
        for *names, found in zip(*(groups[name].to_pylist() for name in (*by, f"{value}_max")), strict=True):
            key = tuple(names)
            maxima[key] = max(found, maxima.get(key, found))
    return maxima


def newest_version(lake: Lake, table: str, app_id: str) -> int | None:
    """`delta.committed_version` of a control table."""
    path = lake.paths.table(table)
    if not is_for_delta_rs(path):
        return committed_version(lake.spark, path, app_id)
    opened = _open(path)
    return None if opened is None else opened.transaction_version(app_id)


def _matching(frame: DataFrame, where: Sequence[Condition]) -> DataFrame:
    for column, name, value in where:
        frame = frame.where(_OPERATORS[name](F.col(column), value))
    return frame


def _local_parts(path: str, where: Sequence[Condition], columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    opened = _open(path)
    if opened is None:
        return
    condition = filters_to_expression(list(where)) if where else None
    try:
        yield from opened.to_pyarrow_dataset().to_batches(
            columns=None if columns is None else list(columns), filter=condition
        )
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise damaged_table(path, error) from error


def _open(path: str) -> DeltaTable | None:
    """The table's newest version; None if there is no table. Raises LakeError if its log is damaged."""
    require_intact_logs([path])
    try:
        return DeltaTable(path)
    except TableNotFoundError:
        return None


def _write(lake: Lake, table: str, rows: pa.Table, commit: Commit, mode: _Mode) -> None:
    path = lake.paths.table(table)
    if is_for_delta_rs(path):
        _commit_rows(path, rows, commit, mode)
    else:
        write = append_once if mode == "append" else overwrite_once
        write(lake.spark.createDataFrame(rows), path, commit)


def _commit_rows(path: str, rows: pa.Table, commit: Commit, mode: _Mode) -> None:
    transaction = Transaction(commit.app_id, commit.version, time.time_ns() // 1_000_000)
    properties = CommitProperties(custom_metadata={"userMetadata": commit.note_json}, app_transactions=[transaction])
    for _ in range(_MOST_CONFLICTS):
        opened = _open(path)
        stored = None if opened is None else opened.transaction_version(commit.app_id)
        if stored is not None and stored >= commit.version:
            return
        try:
            write_deltalake(
                opened or path,
                rows,
                mode=mode,
                schema_mode="overwrite" if mode == "overwrite" else None,
                commit_properties=properties,
            )
        except CommitFailedError:
            continue  # another process has committed, perhaps this very commit
        return
    raise TransientError(f"{path}: {_MOST_CONFLICTS} commits of other processes came between. Run again")
