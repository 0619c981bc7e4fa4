"""The checks that read mirrors: `keys_hold` and `schema_matches_ddl`."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg
import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute as pc
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from cdc_pipeline.checks.results import CheckedAssets, mirror_results, next_in_rotation, tables_result
from cdc_pipeline.gaps import GapKind
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.lake.small_tables import open_small_table
from cdc_pipeline.lake.tables.consistent_cuts import CUTS
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.state import DELETED, MirrorState
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.positions import POSITION, Position
from cdc_pipeline.spark.small_frames import small_frame, small_query
from cdc_pipeline.spark.threads import map_in_threads

KEYS_HOLD = "keys_hold"
MOST_ROWS = 1_000_000
"""The check reads all rows of a mirror up to this size, and the rows of the newest cut of a larger one."""
_MOST_KEY_TABLES = 50
_SHOWN = 5
_POSITION = ("_topic", "_partition", "_offset")


@dataclass(frozen=True)
class _Checked:
    name: str
    scope: str
    """Which rows were read."""
    error: str = ""


def keys_hold_results(
    lake: Lake,
    report: CutReport,
    assets: CheckedAssets,
    declared: Mapping[str, tuple[str, ...]],
    failed_before: Collection[str] = (),
    most_rows: int = MOST_ROWS,
    threads: int = 2,
) -> list[dg.AssetCheckResult]:
    """Fails if two rows of a mirror have the same key, or a key column is NULL. The first result is that of all mirrors,
    the others are of the mirrors that were read: those that the cut changed, and `failed_before`.

    The metadata lists the positions of the messages that wrote such rows. It has no key values, which may be sensitive.

    `declared`, `most_rows`: the fields `keys` and `key_check_rows`; 0 disables the check.
    """
    entries = {entry.name: entry for entry in report.mirrors}
    changed = [name for name in entries if most_rows and (name in report.changed or str(name) in failed_before)]
    selected = next_in_rotation(changed, (), report.cut_id, _MOST_KEY_TABLES)
    since = _since(lake, report) if any(entries[name].rows > most_rows for name in selected) else None

    def check(entry: MirrorEntry) -> _Checked:
        return _check_mirror(lake.spark, entry, declared, most_rows, since)

    with small_query(lake.spark, sum(entries[name].rows for name in selected)):
        checked = map_in_threads(lake.spark, check, [entries[name] for name in selected], threads)
    errors = {table.name: table.error for table in checked if table.error}
    counts = dict(sorted(Counter(table.scope for table in checked).items()))
    postponed = {"postponed to a later cut": len(changed) - len(selected)} if len(changed) > len(selected) else {}
    advice = f"Run {lake.paths.pipeline}_rebuild, which rebuilds the mirrors and replaces those that differ"
    read = {name: table.scope for name, table in zip(selected, checked, strict=True)}
    return [
        tables_result(KEYS_HOLD, assets.cuts, errors, advice, dg.MetadataValue.json(counts | postponed)),
        *mirror_results(KEYS_HOLD, assets, read, errors, advice),
    ]


def _check_mirror(
    spark: SparkSession, entry: MirrorEntry, declared: Mapping[str, tuple[str, ...]], most_rows: int, since: int | None
) -> _Checked:
    name, small = str(entry.name), open_small_table(entry.path)
    table = table_state(spark, entry.path) if small is None else small.state
    columns = () if table is None else MirrorState.from_properties(table.properties).key_columns(declared)
    if table is None or not columns:
        return _Checked(name, "tables without a key")
    if small is not None and table.version == entry.version and entry.rows <= most_rows:
        live = small.rows.filter(pc.invert(small.rows[DELETED])) if entry.keeps_deleted else small.rows
        return _checked(name, "all rows", _broken_in(live, columns))
    # Delta has the newest snapshot in memory, but computes that of a version from the log
    as_of = {} if table.version == entry.version else {"versionAsOf": str(entry.version)}
    mirror = spark.read.format("delta").options(**as_of).load(entry.path)
    rows = live_rows(mirror, keeps_deleted=entry.keeps_deleted)
    rows_read = "all rows"
    if entry.rows > most_rows:
        if since is None or "_commit_ts" not in rows.columns:
            return _Checked(name, "too large and without TSOs")
        rows, rows_read = rows.where(F.col("_commit_ts") > since), "rows of this cut"
    broken = _broken(rows, columns)
    examples = [tuple(row) for row in broken.limit(_SHOWN + 1).collect()]
    return _checked(name, rows_read, examples, broken.count() if len(examples) > _SHOWN else None)


def _checked(name: str, rows_read: str, broken: Sequence[tuple[Any, Any]], count: int | None = None) -> _Checked:
    """`broken`: first and last position of each duplicate or NULL key, `count` of them if it has only some."""
    if not broken:
        return _Checked(name, rows_read)
    positions = ", ".join(filter(None, (_positions(first, last) for first, last in broken[:_SHOWN])))
    return _Checked(name, rows_read, f"{count or len(broken)} key(s) in more than one row, or NULL: {positions}")


def _broken_in(rows: pa.Table, key: tuple[str, ...]) -> list[tuple[Any, Any]]:
    """`_broken`, for the rows of a small mirror."""
    numbered = rows.select(key).append_column("\0row", pa.array(range(len(rows))))
    groups = numbered.group_by(list(key)).aggregate([("\0row", "list"), ("\0row", "count")])
    is_broken = functools.reduce(
        pc.or_, (pc.is_null(groups[name]) for name in key), pc.greater(groups["\0row_count"], 1)
    )
    names = _POSITION if set(_POSITION) <= set(rows.column_names) else ()
    found = []
    for group in groups.filter(is_broken)["\0row_list"].to_pylist():
        places = (tuple(rows[name][row].as_py() for name in names) for row in group)
        known = [place for place in places if place and None not in place] or [(None,)]
        found.append((min(known), max(known)))
    return found


def _broken(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """One row per duplicate or NULL key: positions of the first and last message that wrote it."""
    has_positions = all(name in rows.columns for name in _POSITION)
    position = F.struct(*(F.col(name) if has_positions else F.lit(None).alias(name) for name in _POSITION))
    cells = [F.col(quoted(name)) for name in key]
    missing = functools.reduce(operator.or_, (cell.isNull() for cell in cells))
    numbered = [cell.alias(f"k{number}") for number, cell in enumerate(cells)]
    return (
        rows.select(*numbered, position.alias("position"), missing.alias("missing"))
        .groupBy(*(f"k{number}" for number in range(len(key))), "missing")
        .agg(F.count("*").alias("rows"), F.min("position").alias("first"), F.max("position").alias("last"))
        .where("`rows` > 1 OR missing")
        .select("first", "last")
    )


def _positions(*positions: Sequence[Any]) -> str:
    """Texts of structs with the fields of `_POSITION`; empty if the mirror has no such columns."""
    texts = [str(Position(*row)) for row in positions if row[0] is not None]
    return " and ".join(dict.fromkeys(texts))


def _since(lake: Lake, report: CutReport) -> int | None:
    """Rows of this cut are above this TSO; -1 if there is no previous cut, None without TSOs."""
    if report.resolved_tso is None:
        return None
    before = read_rows(lake, CUTS, ("cut_id", "=", report.cut_id - 1), columns=["resolved_tso"])
    tso = before[0]["resolved_tso"] if before else None
    return -1 if tso is None else int(tso) - 1


SCHEMA_MATCHES_DDL = "schema_matches_ddl"
_MOST_SCHEMA_TABLES = 100
_MOST_UNCHANGED = 10
"""Mirrors that the cut did not change and that are checked nevertheless, in rotation: each costs a look at its log."""
_NONE = "no such column"


def schema_results(
    lake: Lake, report: CutReport, failed_before: Collection[str], recent: RecentAnswers, assets: CheckedAssets
) -> list[dg.AssetCheckResult]:
    """Fails if columns in the Delta schema, in the mirror's definition (`cdc.schema`) and after the newest DDL differ. The
    first result is that of all mirrors, the others are of those that changed, or failed before or now.

    Reads metadata and `ddl_history`, no rows. The metadata lists column, types and statement per table.

    Checks the mirrors that the cut changed and those of `failed_before`, then others in rotation.
    """
    entries = {entry.name: entry for entry in report.mirrors}
    first = [name for name in entries if name in report.changed or str(name) in failed_before]
    # a run without a new cut checks only previous failures
    others = list(entries) if report.published else []
    selected = next_in_rotation(first, others, report.cut_id, min(len(first) + _MOST_UNCHANGED, _MOST_SCHEMA_TABLES))
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
    shown = {name: "its columns" for name in selected if name in first or str(name) in errors}
    return [
        tables_result(SCHEMA_MATCHES_DDL, assets.cuts, errors, advice, checked),
        *mirror_results(SCHEMA_MATCHES_DDL, assets, shown, errors, advice),
    ]


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
