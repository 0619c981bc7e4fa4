"""`consistent_cuts`: one row per published cut, appended after the last commit of every mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import Commit, append_once, committed_version
from cdc_pipeline.spark.small_frames import small_frame, struct_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, Row

    from cdc_pipeline.lake.lake import Lake

_TABLE = "consistent_cuts"
_MIRROR = (
    "STRUCT<`database`: STRING, `table`: STRING, mirror_id: STRING, path: STRING, version: BIGINT, `rows`: BIGINT, "
    "columns: INT, gaps: ARRAY<STRING>, keeps_deleted: BOOLEAN>"
)
_BREACH = (
    "STRUCT<`database`: STRING, `table`: STRING, changes: BIGINT, topic: STRING, `partition`: INT, `offset`: BIGINT>"
)
_HELD = (
    "STRUCT<`database`: STRING, `table`: STRING, topic: STRING, `partition`: INT, `offset`: BIGINT, commit_ts: BIGINT, "
    "`rows`: BIGINT, error: STRING>"
)
_SOURCE = "STRUCT<`database`: STRING, `table`: STRING, upstream_database: STRING, upstream_table: STRING>"
_SCHEMA = (
    "cut_id BIGINT, resolved_tso BIGINT, resolved_time TIMESTAMP, last_batch BIGINT, run_id STRING, "
    "published_at TIMESTAMP, changes BIGINT, applied BIGINT, superseded BIGINT, rejected BIGINT, duplicates BIGINT, "
    "late BIGINT, breaches BIGINT, filtered BIGINT, pending BIGINT, held_by STRING, rebuilt BOOLEAN, "
    "time_zone STRING, keys MAP<STRING, ARRAY<STRING>>, ddl_policy STRING, selection STRING, column_rules STRING, "
    f"mirrors ARRAY<{_MIRROR}>, changed ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, breached ARRAY<{_BREACH}>, "
    f"held ARRAY<{_HELD}>, rebuilt_tables ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, sources ARRAY<{_SOURCE}>, "
    "heartbeats MAP<STRING, BIGINT>"
)


def append_cut(lake: Lake, cut_id: int, row: Mapping[str, object], note: dict[str, object]) -> None:
    """Appends a cut: a value for each column of the table. `note`: for the commit."""
    columns = struct_of(_SCHEMA).names
    assert row.keys() == set(columns), row.keys() ^ set(columns)
    frame = small_frame(lake.spark, [[row[column] for column in columns]], _SCHEMA)
    commit = Commit(lake.paths.app_id(_TABLE), cut_id, note)
    append_once(frame, lake.paths.table(_TABLE), commit)


def read_cuts(lake: Lake) -> DataFrame | None:
    """All cuts; None if none was published yet."""
    return lake.read_if_exists(_TABLE)


def read_newest_cut(lake: Lake) -> Row | None:
    """The newest cut. Reads only the last file, because each row lists all mirrors and is large."""
    cuts = read_cuts(lake)
    if cuts is None:
        return None
    committed = committed_version(lake.spark, lake.paths.table(_TABLE), lake.paths.app_id(_TABLE))
    newest = None if committed is None else last_cut(cuts.where(F.col("cut_id") >= committed))
    # a copied table has no writer versions; a restored one lacks the cut that its writer committed
    return newest or last_cut(cuts)


def last_cut(cuts: DataFrame) -> Row | None:
    """The row with the highest number; None if there is no row."""
    return cuts.orderBy(F.desc("cut_id")).limit(1).first()


def cuts_since_rebuild(cuts: DataFrame) -> DataFrame:
    """The rows of `consistent_cuts` from the newest full rebuild on; all rows if there was none."""
    rebuilt = cuts.where("rebuilt").agg(F.coalesce(F.max("cut_id"), F.lit(0)).alias("rebuilt_id"))
    return cuts.join(F.broadcast(rebuilt), F.col("cut_id") >= F.col("rebuilt_id")).drop("rebuilt_id")


def rebuilt_tables(cuts: DataFrame) -> DataFrame:
    """The tables that were rebuilt one by one: `database`, `table`, and `rebuilt_id`, the newest cut that rebuilt them."""
    return (
        cuts.select("cut_id", F.explode("rebuilt_tables").alias("rebuilt"))
        .groupBy("rebuilt.database", "rebuilt.table")
        .agg(F.max("cut_id").alias("rebuilt_id"))
    )
