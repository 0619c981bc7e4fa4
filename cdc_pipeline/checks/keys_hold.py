"""The row key of each mirror that a cut has changed: no two rows have the same one, and no part of one is NULL."""

from __future__ import annotations

import functools
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.checks.rotation import in_turn, tables_result
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.mirrors.merge.soft_deletes import live_rows
from cdc_pipeline.mirrors.model.row_key import key_columns
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.spark.threads import side_by_side

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.cuts.cut_report import CutReport, MirrorEntry

KEYS_HOLD = "keys_hold"
MOST_ROWS = 1_000_000
"""Up to so many rows all of a mirror are looked at; of a larger one those that the cut has written."""
_MOST_TABLES = 50
_SHOWN = 5
_PLACE = ("_topic", "_partition", "_offset")


@dataclass(frozen=True)
class KeysToCheck:
    """`declared` are keys that the pipeline's file gives tables without one; `most_rows` as `MOST_ROWS`, 0 for none of the
    mirrors; `again` are tables to look at although this cut has not changed them; `threads` side by side."""

    declared: Mapping[str, tuple[str, ...]]
    most_rows: int = MOST_ROWS
    again: Collection[str] = ()
    threads: int = 2


@dataclass(frozen=True)
class _Looked:
    name: str
    what: str
    wrong: str = ""


def keys_hold_result(
    spark: SparkSession, paths: LakePaths, report: CutReport, wanted: KeysToCheck, key: dg.AssetKey
) -> dg.AssetCheckResult:
    """Fails where a mirror has two rows of one key, or a NULL in one; the metadata has each table with the places of the
    messages that wrote such rows (never the keys themselves, which may be nobody's to see) and what to do."""
    entries = {entry.name: entry for entry in report.mirrors}
    changed = (
        [name for name in entries if name in report.changed or str(name) in wanted.again] if wanted.most_rows else []
    )
    chosen = in_turn(changed, (), report.cut_id, _MOST_TABLES)
    since = _since(spark, paths, report) if any(entries[name].rows > wanted.most_rows for name in chosen) else None

    def looked(entry: MirrorEntry) -> _Looked:
        return _looked_at(spark, entry, wanted, since)

    found = side_by_side(spark, looked, [entries[name] for name in chosen], wanted.threads)
    wrong = {table.name: table.wrong for table in found if table.wrong}
    kinds = sorted({table.what for table in found})
    counts = {what: sum(table.what == what for table in found) for what in kinds}
    left = {"left for another cut": len(changed) - len(chosen)} if len(changed) > len(chosen) else {}
    advice = f"Run {paths.pipeline}_rebuild, which makes mirrors again and puts right what differs"
    return tables_result(KEYS_HOLD, key, wrong, advice, dg.MetadataValue.json(counts | left))


def _looked_at(spark: SparkSession, entry: MirrorEntry, wanted: KeysToCheck, since: int | None) -> _Looked:
    name, table = str(entry.name), table_state(spark, entry.path)
    columns = () if table is None else _columns(MirrorState.from_properties(table.properties), wanted)
    if not columns:
        return _Looked(name, "tables without a key")
    mirror = spark.read.format("delta").option("versionAsOf", entry.version).load(entry.path)
    rows = live_rows(mirror, keeps_deleted=entry.keeps_deleted)
    what = "all rows"
    if entry.rows > wanted.most_rows:
        if since is None or "_commit_ts" not in rows.columns:
            return _Looked(name, "too large, and without TSOs")
        rows, what = rows.where(F.col("_commit_ts") > since), "rows of this cut"
    broken = _broken(rows, columns)
    shown = broken.limit(_SHOWN + 1).collect()
    if not shown:
        return _Looked(name, what)
    count = broken.count() if len(shown) > _SHOWN else len(shown)
    places = [_places(row["first"], row["last"]) for row in shown[:_SHOWN]]
    return _Looked(name, what, f"{count} key(s) in more than one row, or NULL: {', '.join(filter(None, places))}")


def _columns(state: MirrorState, wanted: KeysToCheck) -> tuple[str, ...]:
    return key_columns(state, wanted.declared)


def _broken(rows: DataFrame, key: tuple[str, ...]) -> DataFrame:
    """One row per key that more than one row has, or that is NULL in part, with the first and last message that wrote it."""
    traced = all(name in rows.columns for name in _PLACE)
    place = F.struct(*(F.col(name) if traced else F.lit(None).alias(name) for name in _PLACE))
    cells = [F.col(quoted(name)) for name in key]
    missing = functools.reduce(operator.or_, (cell.isNull() for cell in cells))
    numbered = [cell.alias(f"k{number}") for number, cell in enumerate(cells)]
    return (
        rows.select(*numbered, place.alias("place"), missing.alias("missing"))
        .groupBy(*(f"k{number}" for number in range(len(key))), "missing")
        .agg(F.count("*").alias("rows"), F.min("place").alias("first"), F.max("place").alias("last"))
        .where("`rows` > 1 OR missing")
        .select("first", "last")
    )


def _places(*found: tuple[str | None, int | None, int | None]) -> str:
    texts = [f"{topic}/{partition}@{offset}" for topic, partition, offset in found if topic is not None]
    return " and ".join(dict.fromkeys(texts))


def _since(spark: SparkSession, paths: LakePaths, report: CutReport) -> int | None:
    """The resolved TSO of the cut before: what this one has written is newer. None without TSOs."""
    if report.resolved_tso is None:
        return None
    cuts = spark.read.format("delta").load(paths.table("consistent_cuts"))
    row = cuts.where(F.col("cut_id") == report.cut_id - 1).select("resolved_tso").first()
    return -1 if row is None or row[0] is None else int(row[0])
