"""`consistent_cuts`: the one commit that makes a cut visible. It comes after every mirror's last commit."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.cut_report import tso_datetime
from cdc_pipeline.mirrors.policy import DdlPolicy
from cdc_pipeline.resources.delta import Commit, append_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from cdc_pipeline.mirrors.cut_report import CutReport
    from cdc_pipeline.mirrors.window import Window
    from cdc_pipeline.resources.lake import LakePaths

_MIRROR = (
    "STRUCT<`database`: STRING, `table`: STRING, mirror_id: STRING, path: STRING, version: BIGINT, `rows`: BIGINT, "
    "columns: INT, gaps: ARRAY<STRING>>"
)
_BREACH = (
    "STRUCT<`database`: STRING, `table`: STRING, changes: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>"
)
_HELD = (
    "STRUCT<`database`: STRING, `table`: STRING, topic: STRING, `partition`: INT, `offset`: BIGINT, commit_ts: BIGINT, "
    "sql: STRING, `rows`: BIGINT>"
)
CUTS_SCHEMA = (
    "cut_id BIGINT, resolved_tso BIGINT, resolved_time TIMESTAMP, last_batch BIGINT, run_id STRING, "
    "published_at TIMESTAMP, changes BIGINT, applied BIGINT, superseded BIGINT, rejected BIGINT, duplicates BIGINT, "
    "late BIGINT, breaches BIGINT, pending BIGINT, held_by STRING, rebuilt BOOLEAN, "
    "time_zone STRING, keys MAP<STRING, ARRAY<STRING>>, ddl_policy STRING, "
    f"mirrors ARRAY<{_MIRROR}>, changed ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, breached ARRAY<{_BREACH}>, "
    f"held ARRAY<{_HELD}>"
)


@dataclass(frozen=True)
class CutSettings:
    """What a pipeline declares of how its cuts are made: `time_zone` is where the encoder prints TIMESTAMP; `keys` are the
    columns that identify a row, by `database.table`, for tables whose definition has no key."""

    time_zone: str
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    policy: DdlPolicy = field(default_factory=DdlPolicy)


def cuts_app_id(paths: LakePaths) -> str:
    """The writer whose progress in `consistent_cuts` is the newest cut."""
    return f"cdc:{paths.pipeline}:consistent_cuts"


def publish(
    spark: SparkSession,
    paths: LakePaths,
    window: Window,
    report: CutReport,
    note: dict[str, object],
    settings: CutSettings,
    *,
    rebuilt: bool = False,
) -> None:
    """One row: the resolved TSO, the Delta version of every mirror at it, and what became of the row changes.

    `settings` are how values and rows were told, for those who read between cuts. `rebuilt` says that the
    cut takes in all changes anew, so that what earlier cuts counted counts no more.
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
        totals.pending,
        report.streams.held_by,
        rebuilt,
        settings.time_zone,
        {table: list(columns) for table, columns in settings.keys.items()},
        settings.policy.to_json(),
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
            )
            for entry in report.mirrors
        ],
        [(name.database, name.table) for name in sorted(report.changed)],
        [
            (found.name.database, found.name.table, found.changes, found.topic, found.partition, found.offset)
            for found in report.breaches
        ],
        [
            (table.name.database, table.name.table, *table.cause, table.commit_ts, table.sql, table.rows)
            for table in report.held
        ],
    )
    frame = spark.createDataFrame([row], CUTS_SCHEMA)
    append_once(frame, paths.table("consistent_cuts"), Commit(cuts_app_id(paths), window.cut_id, note))
