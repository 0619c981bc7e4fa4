"""Loads the tables of an export into the lake, as texts: a commit per file, or per part of a large one.

Processes parse and write the parts side by side, in bounded memory and without Spark. A load that was stopped goes on with
the parts that have no commit yet. No mirror changes before the tables are adopted (`mirrors.operations.adoption`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from multiprocessing import get_context
from typing import TypeAlias, cast

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError, SourceError
from cdc_pipeline.lake.delta import Commit, commit_properties
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.store import storage_options
from cdc_pipeline.lake.tables.baselines import BaselineFile, BaselineTable, append_baseline, baseline_tables
from cdc_pipeline.mirrors.merge.baseline_rows import FILE, ROW
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.snapshots.definitions import ExportedTable
from cdc_pipeline.snapshots.export import PART_BYTES, Export, ExportType, FileReading, open_export
from cdc_pipeline.snapshots.files import DataFile, ExportFiles
from cdc_pipeline.snapshots.parts import split_file
from cdc_pipeline.snapshots.position import ExportTimes
from cdc_pipeline.snapshots.table_rows import RowBatch

_MOST_RETRIES = 20
_Loaded: TypeAlias = "tuple[int, str | None]"
"""The rows of a part, and the SHA-256 of the file if the part is a whole one."""


@dataclass(frozen=True)
class Part:
    """A part of a file, to be loaded by one process."""

    paths: LakePaths
    baseline: str
    export: str
    """The path of the export."""
    table: ExportedTable
    number: int
    """Of its file in the table."""
    index: int
    """Of the part in the file."""
    file: DataFile
    sha256: str | None = None
    """Of the whole file, if it is known."""

    @property
    def commit(self) -> Commit:
        writer = f"{self.paths.app_id('baseline')}:{self.baseline}:{self.number}.{self.index}"
        return Commit(writer, 1, {"baseline": self.baseline, "file": self.file.path, "part": self.index})


@dataclass(frozen=True)
class Loading:
    """Loads tables of an export. `report` receives one line per table."""

    paths: LakePaths
    run_id: str
    report: Callable[[str], None]
    processes: int = os.cpu_count() or 1
    part_bytes: int = PART_BYTES
    definitions_only: bool = False

    @property
    def _lake(self) -> Lake:
        return Lake(cast(SparkSession, None), self.paths)  # `paths.has_files`: control tables need no Spark

    def load(
        self, kind: ExportType, path: str, wants: Callable[[TableName], bool], times: ExportTimes | None = None
    ) -> str:
        """Loads the tables that are wanted, and returns the id of the baseline: equal for the same export and `times`.

        `times`: needed without a TSO. Raises SourceError if the export is incomplete or damaged, or has none of the tables.
        """
        if not self.paths.has_files:
            raise LakeError(f"{self.paths.root}: baselines need a lake in a local folder or on S3")
        export = open_export(kind, path)
        if export.position.tso is None and times is None and not self.definitions_only:
            says = f" (its files say {export.position.started}, without a time zone)" if export.position.started else ""
            raise SourceError(
                f"the export {path!r} has no TSO: the time at which it began{says} is expected in snapshot.started, as "
                "2026-11-29T01:00:00Z by the clock of the server, or a little earlier"
            )
        if times is not None and 0 < export.files.modified_ms < times.started:
            raise SourceError(
                f"snapshot.started is after the newest file of {path!r} was written: the time at which the export began is "
                "expected, with its time zone (Z is UTC)"
            )
        tables = [table for table in export.tables if wants(table.name)]
        if not tables:
            shown = ", ".join(str(table.name) for table in export.tables[:20])
            raise SourceError(f"the export {path!r} has none of the tables. It has: {shown or 'no table'}")
        for table in tables:
            _ = table.schema  # raises for a definition that cannot be read, before anything is loaded
            if not self.definitions_only and (problem := table.lack or table.damage):
                raise SourceError(
                    f"the export does not have the rows of {table.name} as they are: {problem}. Export again, leave the "
                    "table out of snapshot.tables, or load it with definitions_only"
                )
        export = replace(export, times=None if export.position.tso is not None else times)
        baseline = baseline_id(export, path, definitions_only=self.definitions_only)
        loaded = {table.name for table in baseline_tables(self._lake, baseline)}
        with contextlib.ExitStack() as stack:
            pool = None
            if self.processes > 1:
                pool = stack.enter_context(ProcessPoolExecutor(self.processes, get_context("spawn")))
            for number, table in enumerate(export.tables):
                if table in tables and table.name not in loaded:
                    self._load_table(pool, export, baseline, number, table)
        return baseline

    def _load_table(
        self, pool: ProcessPoolExecutor | None, export: Export, baseline: str, number: int, table: ExportedTable
    ) -> None:
        table = replace(table, files=()) if self.definitions_only else table
        if not self.definitions_only:
            create_table(self.paths, baseline, table)
        rows = [0] * len(table.files)
        hashes: dict[int, str] = {}
        # twice as many as processes, so that none waits while the next file is divided
        for part, (count, sha256) in _load_parts(pool, self._parts(export, baseline, table), 2 * self.processes):
            rows[part.number] += count
            hashes.setdefault(part.number, part.sha256 or sha256 or "")
        files = [
            BaselineFile(table.name, place, file.path, file.size, hashes[place], rows[place])
            for place, file in enumerate(table.files)
        ]
        now, started, finished = datetime.now(timezone.utc), None, None
        if export.times is not None:
            started, finished = export.times.started, export.times.finished or int(now.timestamp() * 1000)
        span = export.position.tso, started, finished
        loaded = BaselineTable(
            baseline, table.name, number, table.create, *span, export.time_zone, sum(rows), export.files.path
        )
        append_baseline(self._lake, loaded, files, now, self.run_id)
        self.report(f"{table.name}: {sum(rows):,} rows")

    def _parts(self, export: Export, baseline: str, table: ExportedTable) -> Iterator[Part]:
        for place, file in enumerate(table.files):
            parts, sha256 = split_file(export.files, file, self.part_bytes)
            known = sha256 or export.hashes.get(file.path)
            for index, part in enumerate(parts):
                yield Part(self.paths, baseline, export.files.path, table, place, index, part, known)


def _load_parts(pool: ProcessPoolExecutor | None, parts: Iterable[Part], most: int) -> Iterator[tuple[Part, _Loaded]]:
    """Each part with the result of `load_part`, in their order. `most`: parts in the queue of the pool, or in its work."""
    if pool is None:
        yield from ((part, load_part(part)) for part in parts)
        return
    waiting: deque[tuple[Part, Future[_Loaded]]] = deque()
    try:
        for part in parts:
            waiting.append((part, pool.submit(load_part, part)))
            if len(waiting) == most:
                first, result = waiting.popleft()
                yield first, result.result()
        for first, result in waiting:
            yield first, result.result()
    finally:
        for _, result in waiting:
            result.cancel()


def baseline_id(export: Export, path: str, *, definitions_only: bool = False) -> str:
    """Identifies an export by its place, its files and its position, and by what was loaded."""
    content = repr((path, sorted(export.files.sizes.items()), export.position, export.times, definitions_only))
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def create_table(paths: LakePaths, baseline: str, table: ExportedTable) -> None:
    """Creates the empty table of texts, unless it exists."""
    path = paths.baseline(baseline, table.name)
    DeltaTable.create(path, _schema(table), mode="ignore", storage_options=storage_options(path))


def _schema(table: ExportedTable) -> pa.Schema:
    return pa.schema(
        [*((name, pa.string()) for name in table.schema.column_names), (FILE, pa.int32()), (ROW, pa.int64())]
    )


def load_part(part: Part) -> _Loaded:
    """Appends the rows of a part unless the lake has them. Returns their number, and the SHA-256 of a file that was read."""
    path = part.paths.baseline(part.baseline, part.table.name)
    opened = DeltaTable(path, storage_options=storage_options(path))
    is_loaded = opened.transaction_version(part.commit.app_id) is not None
    reading = FileReading(ExportFiles(part.export), part.table, part.file)
    if is_loaded:
        for _ in reading:  # counts and hashes
            pass
        return reading.rows, reading.sha256
    schema = _schema(part.table)
    failures: list[SourceError] = []
    rows = pa.RecordBatchReader.from_batches(schema, _batches(reading, schema, part, failures))
    properties = commit_properties(part.commit, most_retries=_MOST_RETRIES)
    try:
        write_deltalake(opened, rows, mode="append", commit_properties=properties)
    except DeltaError:
        if failures:
            raise failures[0] from None
        raise
    return reading.rows, reading.sha256


def _batches(
    reading: FileReading, schema: pa.Schema, part: Part, failures: list[SourceError]
) -> Iterator[pa.RecordBatch]:
    """`failures` gets the error of a damaged file, because delta-rs keeps only its text."""
    try:
        for batch in reading:
            yield _numbered(batch, schema.names[:-2], schema, part)
    except SourceError as error:
        failures.append(error)
        raise


def _numbered(batch: RowBatch, names: Sequence[str], schema: pa.Schema, part: Part) -> pa.RecordBatch:
    texts, count = batch.texts, batch.texts.num_rows
    sent = {name.lower(): texts.column(index) for index, name in enumerate(texts.schema.names)}
    first = batch.first_row
    columns = [sent.get(name.lower(), pa.nulls(count, pa.string())) for name in names]
    place = pa.repeat(pa.scalar(part.number, pa.int32()), count), pa.array(range(first, first + count), pa.int64())
    return pa.RecordBatch.from_arrays([*columns, *place], schema=schema)
