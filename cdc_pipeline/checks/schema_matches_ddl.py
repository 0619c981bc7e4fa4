"""The columns of each mirror, as Delta has them, as the mirror says of itself, and as the newest statement left them: all
three are the same. Only metadata and `ddl_history` are read, no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.checks.rotation import in_turn, tables_result
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Row, SparkSession
    from pyspark.sql.types import StructType

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

SCHEMA_MATCHES_DDL = "schema_matches_ddl"
_MOST_TABLES = 100
_NONE = "no such column"


def schema_result(
    spark: SparkSession, paths: LakePaths, report: CutReport, again: Collection[str], key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Fails where they differ; the metadata has each table with the column, both types and the statement. Mirrors that the
    cut has changed are looked at, those of `again`, and others in turn."""
    entries = {entry.name: entry for entry in report.mirrors}
    first = [name for name in entries if name in report.changed or str(name) in again]
    # a run that found nothing new has nothing to look at but what was wrong before
    others = list(entries) if report.published else []
    chosen = in_turn(first, others, report.cut_id, _MOST_TABLES)
    defined = _defined(spark, paths, chosen)
    wrong: dict[str, str] = {}
    for name in chosen:
        table = table_state(spark, entries[name].path)
        if table is None:
            wrong[str(name)] = f"there is no Delta table at {entries[name].path}"
            continue
        state = MirrorState.from_properties(table.properties)
        found = [*delta_differences(table.schema, state), *ddl_differences(state, defined.get(name))]
        if found:
            wrong[str(name)] = "; ".join(found)
    advice = f"Did somebody alter a mirror by hand? Run {paths.pipeline}_rebuild, which puts right what differs"
    looked_at = dg.MetadataValue.text(f"{len(chosen)} of {len(entries)} mirrors")
    return tables_result(SCHEMA_MATCHES_DDL, key, wrong, advice, looked_at)


def delta_differences(schema: StructType, state: MirrorState) -> list[str]:
    """Where Delta has other columns than the mirror says of itself. What upstream has dropped and the pipeline keeps is
    beside these."""
    found = {field.name: field.dataType.simpleString() for field in schema if field.name not in state.kept}
    expected = {field.name: field.dataType.simpleString() for field in state.spark_schema()}
    return _differences(expected, found, "the mirror's definition says", "Delta has")


def ddl_differences(state: MirrorState, statement: Row | None) -> list[str]:
    """Where the mirror's definition is another than the one that its newest statement left. `statement` is None where none
    was seen; then the definition comes from the rows, and so do the columns of `gaps` that no DDL has told of."""
    if statement is None or state.inferred:
        return []
    left = {column["name"]: column["mysql_type"] for column in statement["columns"]}
    now = {column.name: str(column.type) for column in state.schema.columns}
    untold = {gap.column for gap in state.gaps if gap.kind is GapKind.UNTOLD_COLUMN}
    now = {name: kind for name, kind in now.items() if name in left or untold.isdisjoint((name, None))}
    place = f"the DDL at {statement['topic']}/{statement['partition']}@{statement['offset']} left"
    return _differences(left, now, place, "the mirror's definition says")


def _differences(wanted: Mapping[str, str], found: Mapping[str, str], wants: str, has: str) -> list[str]:
    names = [name for name in dict.fromkeys((*wanted, *found)) if wanted.get(name) != found.get(name)]
    return [f"column {name}: {wants} {wanted.get(name, _NONE)}, {has} {found.get(name, _NONE)}" for name in names]


def _defined(spark: SparkSession, paths: LakePaths, names: Collection[TableName]) -> dict[TableName, Row]:
    """What the newest statement of each of these tables left: its columns, and where the statement is."""
    if not names:
        return {}
    history = spark.read.format("delta").load(paths.table("ddl_history"))
    wanted = small_frame(spark, [(name.database, name.table) for name in names], "`database` STRING, `table` STRING")
    place = ["topic", "partition", "offset"]
    rows = (
        history.where("size(tables) > 0")
        .select("cut_id", "commit_ts", *place, F.explode("tables").alias("left"))
        .select("cut_id", "commit_ts", *place, "left.database", "left.table", "left.columns")
        .join(F.broadcast(wanted), ["database", "table"], "left_semi")
        .groupBy("database", "table")
        .agg(F.max_by(F.struct(*place, "columns"), F.struct("cut_id", "commit_ts", *place)).alias("newest"))
        .collect()
    )
    return {TableName(row["database"], row["table"]): row["newest"] for row in rows}
