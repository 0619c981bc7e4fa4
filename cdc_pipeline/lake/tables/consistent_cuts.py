"""`consistent_cuts`: one row per published cut, appended after the last commit of every mirror."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from cdc_pipeline.lake.control_tables import append_rows, newest_version, read_rows
from cdc_pipeline.lake.delta import Commit
from cdc_pipeline.lake.file_statistics import Condition
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.spark.small_frames import small_table, struct_of

CUTS = "consistent_cuts"
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
_SCHEMA = (
    "cut_id BIGINT, resolved_tso BIGINT, resolved_time TIMESTAMP, last_batch BIGINT, run_id STRING, "
    "published_at TIMESTAMP, changes BIGINT, applied BIGINT, superseded BIGINT, rejected BIGINT, duplicates BIGINT, "
    "late BIGINT, breaches BIGINT, filtered BIGINT, pending BIGINT, held_by STRING, rebuilt BOOLEAN, "
    "time_zone STRING, keys MAP<STRING, ARRAY<STRING>>, ddl_policy STRING, selection STRING, column_rules STRING, "
    f"mirrors ARRAY<{_MIRROR}>, changed ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, breached ARRAY<{_BREACH}>, "
    f"held ARRAY<{_HELD}>, rebuilt_tables ARRAY<STRUCT<`database`: STRING, `table`: STRING>>, "
    "heartbeats MAP<STRING, BIGINT>, "
    # without watermarks: topic → the `at` below which the cut has all row changes and statements
    "ends MAP<STRING, BIGINT>"
)


def append_cut(lake: Lake, cut_id: int, row: Mapping[str, object], note: dict[str, object]) -> None:
    """Appends a cut: a value for each column of the table. `note`: for the commit."""
    columns = struct_of(_SCHEMA).names
    assert row.keys() == set(columns), row.keys() ^ set(columns)
    rows = small_table([[row[column] for column in columns]], _SCHEMA)
    append_rows(lake, CUTS, rows, Commit(lake.paths.app_id(CUTS), cut_id, note))


def read_newest_cut(lake: Lake) -> dict[str, Any] | None:
    """The newest cut. Reads only the last file, because each row lists all mirrors and is large."""
    committed = newest_version(lake, CUTS, lake.paths.app_id(CUTS))
    newest = [] if committed is None else read_rows(lake, CUTS, ("cut_id", ">=", committed))
    # a copied table has no writer versions; a restored one lacks the cut that its writer committed
    return max(newest or read_rows(lake, CUTS), key=lambda cut: int(cut["cut_id"]), default=None)


def newest_rebuild(lake: Lake) -> int:
    """The id of the newest cut of a full rebuild; 0 if there was none."""
    return max((cut["cut_id"] for cut in read_rows(lake, CUTS, ("rebuilt", "=", True), columns=["cut_id"])), default=0)


def cuts_since_rebuild(lake: Lake, *columns: str, where: Sequence[Condition] = ()) -> list[dict[str, Any]]:
    """The cuts from the newest full rebuild on, all if there was none, oldest first, with `cut_id` and these columns."""
    since: Condition = ("cut_id", ">=", newest_rebuild(lake))
    return sorted(read_rows(lake, CUTS, since, *where, columns=["cut_id", *columns]), key=itemgetter("cut_id"))
