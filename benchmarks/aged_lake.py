"""Gives the tables of a lake the commits of many batches, with the upkeep that comes between them.

The control tables get real rows by the pipeline's own writers: 10 ms a commit. Spark would need half a second for a commit
to the other tables. Their commits are therefore files as Delta writes them: with the writer's version and one removed file,
but without rows. So logs, checkpoints, removed files and control tables are those of an old lake, and raw, change log and
mirrors have the rows of a young one.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
from deltalake import DeltaTable

from benchmarks.batches import OFFSETS_OF_A_BATCH, START_MS
from benchmarks.output import log
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.control_tables import append_rows, overwrite_rows
from cdc_pipeline.lake.delta import Commit, forget_cached_log, table_state
from cdc_pipeline.lake.delta_log import delta_log
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.operations.maintenance import EVERY, keep_table_small

_LOG_EVERY = 1000
_WRITERS = {
    "watermarks": append_rows,
    "batches": append_rows,
    "consistent_cuts": append_rows,
    "cut_plans": overwrite_rows,
}


@dataclass
class AgedLake:
    """A lake with one cut per batch, under the same id. Each cut changes the same mirror."""

    lake: Lake
    mirror: str
    """Path of the mirror."""
    _rows: dict[str, pa.Table] = field(default_factory=dict)

    def age(self, first: int, last: int) -> None:
        """Adds the commits of the batches from `first` to `last`, which must follow the newest batch."""
        for start in range(first, last + 1, EVERY):
            batches = range(start, min(start + EVERY, last + 1))
            for batch in batches:
                self._add_control_rows(batch)
            for path, app_id in self._spark_tables().items():
                self._add_commits(path, app_id, batches)
            for table in (*_WRITERS, "raw_topic_snapshot", "change_log"):
                keep_table_small(self.lake, table, self.lake.paths.table(table), log)
            keep_table_small(self.lake, "", self.mirror, log)
            if start // _LOG_EVERY != batches[-1] // _LOG_EVERY:
                log(f"• aged up to batch {batches[-1]:,}")

    def _spark_tables(self) -> dict[str, str]:
        """Path → application id of the writer that a commit per batch is from."""
        paths = self.lake.paths
        return {
            paths.table("raw_topic_snapshot"): f"cdc:{paths.pipeline}:raw",
            paths.table("change_log"): paths.app_id("change_log"),
            self.mirror: "benchmark:aged",
        }

    def _add_control_rows(self, batch: int) -> None:
        note: dict[str, Any] = {"batch": batch, "run_id": "benchmark"}
        ms = START_MS + batch * 1000
        values = {
            "batch_id": batch,
            "cut_id": batch,
            "last_batch": batch,
            "offset": batch * OFFSETS_OF_A_BATCH,
            "watermark_ts": ms << TSO_SHIFT,
            "resolved_tso": ms << TSO_SHIFT,
            # no rows, so that the checks of the balance hold
            "row_changes": 0,
            "changes": 0,
        }
        for table, write in _WRITERS.items():
            rows = _with_values(self._newest_row(table), values)
            write(self.lake, table, rows, Commit(self.lake.paths.app_id(table), batch, note))

    def _newest_row(self, table: str) -> pa.Table:
        if table not in self._rows:
            column = "batch_id" if table in ("batches", "watermarks") else "cut_id"
            rows = DeltaTable(self.lake.paths.table(table)).to_pyarrow_table()
            self._rows[table] = rows.sort_by(column).slice(rows.num_rows - 1)
        return self._rows[table]

    def _add_commits(self, path: str, app_id: str, batches: range) -> None:
        state = table_state(self.lake.spark, path)
        assert state is not None
        folder = Path(path, "_delta_log")
        for number, batch in enumerate(batches, state.version + 1):
            (folder / f"{number:020}.json").write_text("\n".join(map(json.dumps, _actions(app_id, batch))))
            # as many files as after a commit of Spark; Spark reads the newest one, which is missing here
            if batch != batches[-1]:
                (folder / f"{number:020}.crc").touch()
        forget_cached_log(self.lake.spark, path)
        delta_log(self.lake.spark, path).checkpoint()


def _actions(app_id: str, batch: int) -> list[dict[str, Any]]:
    now_ms = int(time.time() * 1000)
    removed = {
        "path": f"part-00000-{uuid.uuid4()}-c000.snappy.parquet",
        "deletionTimestamp": now_ms,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": {},
        "size": 2000,
    }
    return [
        {"commitInfo": {"timestamp": now_ms, "operation": "WRITE", "operationParameters": {}}},
        {"txn": {"appId": app_id, "version": batch, "lastUpdated": now_ms}},
        {"remove": removed},
    ]


def _with_values(row: pa.Table, values: Mapping[str, int]) -> pa.Table:
    for number, name in enumerate(row.column_names):
        if name in values:
            row = row.set_column(number, row.schema.field(name), pa.array([values[name]], row.schema.field(name).type))
    return row
