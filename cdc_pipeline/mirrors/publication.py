"""`consistent_cuts`: the one commit that makes a cut visible. It comes after every mirror's last commit."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.column_rules import ColumnRules
from cdc_pipeline.mirrors.cut_report import tso_datetime
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.mirrors.selection import ALL_TABLES, TableSelection
from cdc_pipeline.resources.delta import Commit, append_once
from cdc_pipeline.resources.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from cdc_pipeline.mirrors.cut_report import CutReport
    from cdc_pipeline.mirrors.window import Window
    from cdc_pipeline.resources.lake import LakePaths
    from cdc_pipeline.schemas.table import TableName

_MIRROR = (
    "STRUCT<`database`: STRING, `table`: STRING, mirror_id: STRING, path: STRING, version: BIGINT, `rows`: BIGINT, "
    "columns: INT, gaps: ARRAY<STRING>, keeps_deleted: BOOLEAN>"
)
_BREACH = (
    "STRUCT<`database`: STRING, `table`: STRING, changes: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>"
)
_HELD = (
    "STRUCT<`database`: STRING, `table`: STRING, topic: STRING, `partition`: INT, `offset`: BIGINT, commit_ts: BIGINT, "
    "sql: STRING, `rows`: BIGINT, error: STRING>"
)
_SOURCE = "STRUCT<`database`: STRING, `table`: STRING, upstream_database: STRING, upstream_table: STRING>"
CUTS_SCHEMA = (
    "cut_id BIGINT, resolved_tso BIGINT, resolved_time TIMESTAMP, last_batch BIGINT, run_id STRING, "
    "published_at TIMESTAMP, changes BIGINT, applied BIGINT, superseded BIGINT, rejected BIGINT, duplicates BIGINT, "
    "late BIGINT, breaches BIGINT, filtered BIGINT, pending BIGINT, held_by STRING, rebuilt BOOLEAN, "
    "time_zone STRING, keys MAP<STRING, ARRAY<STRING>>, ddl_policy STRING, selection STRING, column_rules STRING, "
    f"mirrors ARRAY<{_MIRROR}>, changed ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, breached ARRAY<{_BREACH}>, "
    f"held ARRAY<{_HELD}>, rebuilt_tables ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, sources ARRAY<{_SOURCE}>, "
    "heartbeats MAP<STRING, BIGINT>"
)


@dataclass(frozen=True)
class CutSettings:
    """What a pipeline declares of how its cuts are made: `time_zone` is where the encoder prints TIMESTAMP; `keys` are the
    columns that identify a row, by `database.table`, for tables whose definition has no key; `selection` is which tables
    are mirrored, under which names; `columns` are what mirrors carry beside upstream's."""

    time_zone: str
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: DdlPolicy = field(default_factory=DdlPolicy)
    selection: TableSelection = ALL_TABLES
    columns: ColumnRules = field(default_factory=ColumnRules)


def publish(
    spark: SparkSession,
    paths: LakePaths,
    window: Window,
    report: CutReport,
    note: dict[str, object],
    settings: CutSettings,
    *,
    rebuilt: bool = False,
    rebuilt_tables: Sequence[TableName] = (),
) -> None:
    """One row: the resolved TSO, the Delta version of every mirror at it, and what became of the row changes.

    `settings` are how values and rows were told, for those who read between cuts. `rebuilt` says that the
    cut takes in all changes anew, so that what earlier cuts counted counts no more; `rebuilt_tables` names the tables of
    which it does where others stay as they were.
    """
    totals = report.totals
    row = (
        window.cut_id,
        window.resolved_tso,
        tso_datetime(window.resolved_tso),
        window.last_batch,
        note["run_id"],
        datetime.now(timezone.utc),
        totals.changes,
        totals.applied,
        totals.superseded,
        totals.rejected,
        totals.duplicates,
        totals.late,
        totals.breaches,
        totals.filtered,
        totals.pending,
        report.streams.held_by,
        rebuilt,
        settings.time_zone,
        {table: list(columns) for table, columns in settings.keys.items()},
        settings.policy.to_json(),
        settings.selection.to_json(),
        json.dumps(settings.columns.as_plain(), ensure_ascii=False),
        [
            (
                entry.name.database,
                entry.name.table,
                entry.mirror_id,
                entry.path.removeprefix(f"{paths.home}/"),
                entry.version,
                entry.rows,
                entry.columns,
                list(entry.gaps),
                entry.keeps_deleted,
            )
            for entry in report.mirrors
        ],
        [(name.database, name.table) for name in sorted(report.changed)],
        [
            (found.name.database, found.name.table, found.changes, found.topic, found.partition, found.offset)
            for found in report.breaches
        ],
        [
            (table.name.database, table.name.table, *table.cause, table.commit_ts, table.sql, table.rows, table.error)
            for table in report.held
        ],
        [(name.database, name.table) for name in rebuilt_tables],
        [
            (mirror.database, mirror.table, source.database, source.table)
            for mirror, sources in sorted(report.sources.items())
            for source in sources
        ],
        dict(report.streams.heartbeats),
    )
    frame = small_frame(spark, [row], CUTS_SCHEMA)
    commit = Commit(paths.writer("consistent_cuts"), window.cut_id, note)
    # a lake that was made before a column was added takes it in
    append_once(frame, paths.table("consistent_cuts"), commit, mergeSchema="true")
