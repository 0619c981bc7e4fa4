"""Dead letters of a cut: tables whose records were rejected while decoding, and rows rejected by the merge."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.delta import committed_version
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.window import Window
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import BATCH_POSITION, POSITION, Position

VALUE_HAS_TYPE = "value_has_type"
"""The only rule that the merge checks, because only it knows the type of a column."""
_SHOWN = 100
"""Characters of a rejected value in `reason`."""


def dead_letter_gaps(lake: Lake, window: Window, selection: TableSelection) -> list[tuple[TableName, Gap]]:
    """The gaps of tables whose records became dead letters while this cut's batches were decoded."""
    path = lake.paths.table("dead_letters")
    newest = committed_version(lake.spark, path, lake.paths.app_id("dead_letters"))
    if newest is not None and newest <= window.after_batch:
        return []
    dead_letters = selection.selected(lake.read_path(path))
    new = dead_letters.where(F.col("batch_id").between(window.after_batch + 1, window.last_batch))
    with_table = new.where((F.col("rule") != VALUE_HAS_TYPE) & (F.coalesce("table", F.lit("")) != ""))
    rows = (
        with_table.groupBy("database", "table", "rule")
        .agg(F.count("*").alias("count"), F.min(F.struct(*BATCH_POSITION)).alias("first"))
        .orderBy("database", "table", "rule")
        .collect()
    )
    gaps = []
    for row in rows:
        first = Position(*(row["first"][name] for name in POSITION))
        detail = f"{row['count']} record(s) are dead letters of rule {row['rule']}, the first at {first}"
        gaps.append((TableName(row["database"] or "", row["table"]), Gap(GapKind.DEAD_LETTERS, detail)))
    return gaps


def value_dead_letters(rows: DataFrame, state: MirrorState, raw: DataFrame) -> DataFrame:
    """Rows for `dead_letters`: those of `typed_rows.typed_rows` with bad values, with their records from `raw`."""
    return (
        rows.where("size(bad) > 0")
        .select(
            F.col("_topic").alias("topic"),
            F.col("_partition").alias("partition"),
            F.col("_offset").alias("offset"),
            F.lit(VALUE_HAS_TYPE).alias("rule"),
            F.lit(state.name.database).alias("database"),
            F.lit(state.name.table).alias("table"),
            F.nullif(F.concat_ws(", ", "bad.column"), F.lit("")).alias("column"),
            F.concat_ws("; ", F.transform("bad", _reason)).alias("reason"),
        )
        .join(raw, list(POSITION))
        .select(*BATCH_POSITION, "timestamp", "rule", "database", "table", "column", "reason", "key", "value")
    )


def _reason(bad: Column) -> Column:
    text = F.coalesce(F.substring(bad["text"], 1, _SHOWN), F.lit("no value"))
    column = F.coalesce(F.concat(F.lit("column "), bad["column"], F.lit(": ")), F.lit(""))
    return F.concat(column, F.lit("expected "), bad["type"], F.lit(", found "), text)
