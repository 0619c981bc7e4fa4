"""Reads and writes the lake's control tables, such as `batches` and `consistent_cuts`: a few rows of the driver.

In local folders and on S3 delta-rs (`deltalake`) does it without a Spark job: an append takes some 30 ms instead of 400. On
other file systems Spark does it, because delta-rs would need their credentials in its own form; and in folders whose names
delta-rs would change (`paths.is_for_delta_rs`). The tables are the same: each side reads what the other one wrote. Only
Spark writes checksum files beside its commits, so after a commit of delta-rs Spark has to read the log itself.

Nobody needs earlier versions of these tables: rows have the id of their batch or cut, and only the newest plan counts. They
get a commit per batch, so their logs keep a quarter of an hour, and `compact_rows` joins their files.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyarrow import compute as pc
from pyarrow.dataset import FileSystemDataset, ParquetFileFormat  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.errors import TransientError
from cdc_pipeline.lake.delta import Commit, commit_properties, committed_version
from cdc_pipeline.lake.faults import damaged_table
from cdc_pipeline.lake.file_statistics import OPERATORS, Condition, list_own_files
from cdc_pipeline.lake.handles import (
    forget_version,
    note_handle,
    note_transaction,
    note_version,
    open_table,
    transaction_version,
)
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import is_for_delta_rs, is_s3_path
from cdc_pipeline.lake.store import arrow_folder, read_data_file, storage_options
from cdc_pipeline.lake.writes import append_once, overwrite_once

_Mode: TypeAlias = Literal["append", "overwrite"]
_LONGER = "longer than"
_PARQUET = ParquetFileFormat()
_MOST_CONFLICTS = 20
_NEW_TABLE = {
    "delta.checkpointInterval": "20",
    "delta.logRetentionDuration": "interval 15 minutes",
    # as long as a reader of the table may take
    "delta.deletedFileRetentionDuration": "interval 1 day",
}
_COMPACTED_BYTES = 16 * 2**20
_WHOLE_BYTES = 2**16
"""Size up to which a file on S3 is read as a whole."""
_READERS = 8


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
    if is_for_delta_rs(lake.paths.table(table)):
        return list(iterate_rows(lake, table, *where, columns=columns))
    frame = lake.read_if_exists(table)
    if frame is None:
        return []
    return [row.asDict(recursive=True) for row in _matching(frame, where).select(*columns or frame.columns).collect()]


def iterate_rows(
    lake: Lake, table: str, *where: Condition, columns: Sequence[str] | None = None
) -> Iterator[dict[str, Any]]:
    """`read_rows`, one by one: for tables that do not fit into memory."""
    path = lake.paths.table(table)
    if is_for_delta_rs(path):
        for part in _local_parts(path, where, columns):
            yield from part.to_pylist(maps_as_pydicts="strict")
    elif (frame := lake.read_if_exists(table)) is not None:
        for row in _matching(frame, where).select(*columns or frame.columns).toLocalIterator(prefetchPartitions=True):
            yield row.asDict(recursive=True)


def is_empty(lake: Lake, table: str) -> bool:
    """Whether the table has no rows, or does not exist."""
    path = lake.paths.table(table)
    if not is_for_delta_rs(path):
        frame = lake.read_if_exists(table)
        return frame is None or frame.isEmpty()
    opened = open_table(path)
    if opened is None:
        return True
    with _named_damage(path):
        return not _dataset(opened, path).count_rows()


def read_frame(lake: Lake, table: str, *where: Condition) -> DataFrame:
    """As `read_rows`, for queries. The table must exist. Of a local table, Spark gets the rows and need not read its log."""
    path = lake.paths.table(table)
    if not is_for_delta_rs(path):
        return _matching(lake.read(table), where)
    with _named_damage(path):
        opened = open_table(path)
        assert opened is not None
        rows = _dataset(opened, path, where).to_table(filter=_expression(where))
    return lake.spark.createDataFrame(rows)


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


def read_sums(lake: Lake, table: str, *where: Condition, columns: Sequence[str]) -> dict[str, int]:
    """Column → sum over the rows that meet all conditions. For tables of many rows, which are read in parts."""
    path = lake.paths.table(table)
    sums = dict.fromkeys(columns, 0)
    if is_for_delta_rs(path):
        for part in _local_parts(path, where, columns):
            for column in columns:
                sums[column] += pc.sum(part[column]).as_py() or 0
    elif (frame := lake.read_if_exists(table)) is not None:
        found = _matching(frame, where).agg(*(F.coalesce(F.sum(column), F.lit(0)).alias(column) for column in columns))
        sums |= found.collect()[0].asDict()
    return sums


def compact_rows(lake: Lake, table: str) -> bool:
    """Joins the small files of a control table, and removes those that were replaced a day ago. False if Spark has to do
    it, because the table is not in a local folder."""
    path = lake.paths.table(table)
    if not is_for_delta_rs(path):
        return False
    if (opened := open_table(path)) is not None:
        opened.optimize.compact(target_size=_COMPACTED_BYTES)
        opened.vacuum(dry_run=False)
        forget_version(path)
    return True


def newest_version(lake: Lake, table: str, app_id: str) -> int | None:
    """`delta.committed_version` of a control table."""
    path = lake.paths.table(table)
    if not is_for_delta_rs(path):
        return committed_version(lake.spark, path, app_id)
    opened = open_table(path)
    return None if opened is None else transaction_version(opened, app_id)


def _matching(frame: DataFrame, where: Sequence[Condition]) -> DataFrame:
    for column, name, value in where:
        frame = frame.where(F.size(column) > value if name == _LONGER else OPERATORS[name](F.col(column), value))
    return frame


def _expression(where: Sequence[Condition]) -> Any:
    """The conditions for pyarrow; None without conditions."""
    terms: list[Any] = [
        pc.list_value_length(pc.field(column)) > value if name == _LONGER else OPERATORS[name](pc.field(column), value)
        for column, name, value in where
    ]
    return functools.reduce(operator.and_, terms) if terms else None


def _local_parts(path: str, where: Sequence[Condition], columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
    opened = open_table(path)
    if opened is None:
        return
    with _named_damage(path):
        yield from _dataset(opened, path, where).to_batches(
            columns=None if columns is None else list(columns), filter=_expression(where)
        )


def _dataset(opened: DeltaTable, path: str, where: Sequence[Condition] = ()) -> Any:
    """The rows of a local table, from the files that may have rows which meet all conditions. delta-rs's own dataset takes
    0.7 ms for each file of the table."""
    files = arrow_folder(path)
    own = list_own_files(opened, where)
    if own is None:
        return opened.to_pyarrow_dataset(filesystem=files)

    def fragment(name: str, size: int) -> Any:
        if is_s3_path(path) and size <= _WHOLE_BYTES:  # one request instead of three
            return _PARQUET.make_fragment(pa.BufferReader(read_data_file(path, name, size)))
        return _PARQUET.make_fragment(name, filesystem=files, file_size=size)

    listed = own["path"].to_pylist(), own["size_bytes"].to_pylist()
    if is_s3_path(path):
        with ThreadPoolExecutor(_READERS) as pool:
            fragments = list(pool.map(fragment, *listed))
    else:
        fragments = list(map(fragment, *listed))
    return FileSystemDataset(fragments, pa.schema(opened.schema().to_arrow()), _PARQUET, files)


@contextlib.contextmanager
def _named_damage(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise damaged_table(path, error) from error


def _write(lake: Lake, table: str, rows: pa.Table, commit: Commit, mode: _Mode) -> None:
    path = lake.paths.table(table)
    if is_for_delta_rs(path):
        _commit_rows(path, rows, commit, mode)
    else:
        write = append_once if mode == "append" else overwrite_once
        write(lake.spark.createDataFrame(rows), path, commit)


def _commit_rows(path: str, rows: pa.Table, commit: Commit, mode: _Mode) -> None:
    properties = commit_properties(commit)
    for _ in range(_MOST_CONFLICTS):
        opened = open_table(path)
        stored = None if opened is None else transaction_version(opened, commit.app_id)
        if stored is not None and stored >= commit.version:
            return
        try:
            write_deltalake(
                opened or path,
                rows,
                mode=mode,
                storage_options=storage_options(path),
                schema_mode="overwrite" if mode == "overwrite" else None,
                configuration=_NEW_TABLE if opened is None else None,
                commit_properties=properties,
            )
        except CommitFailedError:
            forget_version(path)
            continue  # another process has committed, perhaps this very commit
        if opened is None:
            note_version(path, 0)
        else:
            note_handle(opened, path)
            note_transaction(opened, commit.app_id, commit.version)
        return
    raise TransientError(f"{path}: {_MOST_CONFLICTS} commits of other processes came between. Run again")
