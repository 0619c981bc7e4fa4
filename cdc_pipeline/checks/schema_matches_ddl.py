"""The check `schema_matches_ddl`: columns in the Delta schema, in the mirror's definition (`cdc.schema`) and after the
newest DDL statement are equal. Reads metadata and `ddl_history`, no rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.checks.rotation import next_in_rotation, tables_result
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Row
    from pyspark.sql.types import StructType

    from cdc_pipeline.lake.lake import Lake
    from cdc_pipeline.lake.recent_answers import RecentAnswers
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport

SCHEMA_MATCHES_DDL = "schema_matches_ddl"
_MOST_TABLES = 100
_MOST_UNCHANGED = 10
"""Mirrors that the cut did not change and that are checked nevertheless, in rotation: each costs a look at its log."""
_NONE = "no such column"


def schema_result(
    lake: Lake, report: CutReport, failed_before: Collection[str], recent: RecentAnswers, key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Fails if columns differ. The metadata lists column, types and statement per table.

    Checks the mirrors that the cut changed and those of `failed_before`, then others in rotation.
    """
    entries = {entry.name: entry for entry in report.mirrors}
    first = [name for name in entries if name in report.changed or str(name) in failed_before]
    # a run without a new cut checks only previous failures
    others = list(entries) if report.published else []
    selected = next_in_rotation(first, others, report.cut_id, min(len(first) + _MOST_UNCHANGED, _MOST_TABLES))
    version = lake.state("ddl_history"), frozenset(selected)
    statements = recent.cached_query("newest statements", version, lambda: _newest_statements(lake, selected))
    errors: dict[str, str] = {}
    for name in selected:
        table = table_state(lake.spark, entries[name].path)
        if table is None:
            errors[str(name)] = f"no Delta table at {entries[name].path}"
            continue
        state = MirrorState.from_properties(table.properties)
        differences = [*delta_differences(table.schema, state), *ddl_differences(state, statements.get(name))]
        if differences:
            errors[str(name)] = "; ".join(differences)
    advice = (
        f"A mirror may have been altered by hand. Run {lake.paths.pipeline}_rebuild, which replaces tables that differ"
    )
    checked = dg.MetadataValue.text(f"{len(selected)} of {len(entries)} mirrors")
    return tables_result(SCHEMA_MATCHES_DDL, key, errors, advice, checked)


def delta_differences(schema: StructType, state: MirrorState) -> list[str]:
    """Differences between the Delta schema and the mirror's definition. Ignores dropped columns that the policy keeps."""
    found = {field.name: field.dataType.simpleString() for field in schema if field.name not in state.kept_columns}
    expected = {field.name: field.dataType.simpleString() for field in state.spark_schema()}
    return _differences(expected, found, "the mirror's definition has", "Delta has")


def ddl_differences(state: MirrorState, statement: Row | None) -> list[str]:
    """Differences between the mirror's definition and the table after its newest statement (None: none was seen).

    Ignores definitions inferred from rows, and columns with the gap `undeclared_column`.
    """
    if statement is None or state.inferred:
        return []
    declared = {column["name"]: column["mysql_type"] for column in statement["columns"]}
    now = {column.name: str(column.type) for column in state.schema.columns}
    undeclared = {gap.column for gap in state.gaps if gap.kind is GapKind.UNDECLARED_COLUMN}
    now = {name: kind for name, kind in now.items() if name in declared or undeclared.isdisjoint((name, None))}
    ddl = f"the DDL at {Position(*(statement[name] for name in POSITION))} has"
    return _differences(declared, now, ddl, "the mirror's definition has")


def _differences(left: Mapping[str, str], right: Mapping[str, str], left_has: str, right_has: str) -> list[str]:
    names = [name for name in dict.fromkeys((*left, *right)) if left.get(name) != right.get(name)]
    return [
        f"column {name}: {left_has} {left.get(name, _NONE)}, {right_has} {right.get(name, _NONE)}" for name in names
    ]


def _newest_statements(lake: Lake, names: Collection[TableName]) -> dict[TableName, Row]:
    """The newest statement of each table: its position, and the columns of the table after it."""
    if not names:
        return {}
    history = lake.read("ddl_history")
    tables = small_frame(
        lake.spark, [(name.database, name.table) for name in names], "`database` STRING, `table` STRING"
    )
    position = list(POSITION)
    rows = (
        history.where("size(tables) > 0")
        .select("cut_id", "commit_ts", *position, F.explode("tables").alias("result"))
        .select("cut_id", "commit_ts", *position, "result.database", "result.table", "result.columns")
        .join(F.broadcast(tables), ["database", "table"], "left_semi")
        .groupBy("database", "table")
        .agg(F.max_by(F.struct(*position, "columns"), F.struct("cut_id", "commit_ts", *position)).alias("newest"))
        .collect()
    )
    return {TableName(row["database"], row["table"]): row["newest"] for row in rows}
