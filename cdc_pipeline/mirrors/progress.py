"""How far a pipeline is: which batches are in, up to which TSO its streams are complete, which cut was published."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.policy import HeldTable
from cdc_pipeline.mirrors.selection import ALL_TABLES, TableSelection
from cdc_pipeline.resources.delta import table_state
from cdc_pipeline.schemas.table import TableName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame, Row, SparkSession

    from cdc_pipeline.mirrors.upstream_tables import Sources
    from cdc_pipeline.resources.lake import LakePaths


@dataclass(frozen=True)
class StreamProgress:
    """What the streams of the decoded batches say together.

    `exact` is true once a record with a TSO was seen: then mirrors wait for watermarks. `resolved_tso` is the minimum
    over every (topic, partition) of its newest watermark; None while a partition has none, named in `waiting_for`.
    `held_by` is the partition of that minimum, and `newest_tso` the newest watermark of any.
    """

    last_batch: int
    exact: bool
    resolved_tso: int | None
    held_by: str | None
    waiting_for: tuple[str, ...]
    newest_tso: int | None = None

    @property
    def held_back_ms(self) -> int:
        """How far the partition that holds the mirrors back is behind the newest watermark."""
        if self.resolved_tso is None or self.newest_tso is None:
            return 0
        return (self.newest_tso >> TSO_SHIFT) - (self.resolved_tso >> TSO_SHIFT)

    def what_holds(self) -> str:
        """Why mirrors cannot go further, in words."""
        if self.waiting_for:
            return f"no watermark has come yet in {', '.join(self.waiting_for)}"
        if self.held_by is None:
            return "nothing new has come"
        seconds = self.held_back_ms / 1000
        behind = f", {seconds:.1f} s behind the newest watermark" if seconds else ", as old as all others"
        return f"the newest common watermark is as before, held by {self.held_by}{behind}"

    def limited(self, tso: int | None) -> StreamProgress:
        """The same streams, read to that TSO and no further."""
        if tso is None or self.resolved_tso is None or self.resolved_tso <= tso:
            return self
        return replace(self, resolved_tso=tso)


@dataclass(frozen=True)
class PublishedCut:
    """The newest row of `consistent_cuts`, or cut 0 before there is one.

    `selection` is what it was made with. Where that has routes, `sources` are the upstream tables of all mirrors that
    there have ever been, by mirror: one, or those that are merged.
    """

    cut_id: int
    resolved_tso: int | None
    last_batch: int
    mirrors: tuple[Row, ...]
    pending: int = 0
    held: tuple[HeldTable, ...] = ()
    selection: TableSelection = ALL_TABLES
    sources: Sources = field(default_factory=dict)

    def upstream(self, mirror: TableName) -> tuple[TableName, ...]:
        """Upstream's tables of a mirror."""
        return self.sources.get(mirror, (mirror,))

    @property
    def held_rows(self) -> int:
        """The row changes of `pending` that wait for an approval."""
        return sum(table.rows for table in self.held)

    @property
    def names(self) -> frozenset[TableName]:
        return frozenset(TableName(row["database"], row["table"]) for row in self.mirrors)


NO_CUT = PublishedCut(0, None, 0, ())


def stream_progress(spark: SparkSession, paths: LakePaths) -> StreamProgress:
    """Read from `batches` and `watermarks`: two small tables, whatever the topics' size. A topic that the newest batch calls
    ended holds nothing back."""
    batches = spark.read.format("delta").load(paths.table("batches"))
    totals = (
        batches.select("batch_id", "exact_ts", "ended", F.explode_outer("offsets").alias("range"))
        .agg(
            F.max("batch_id").alias("last"),
            F.max("exact_ts").alias("exact"),
            F.max_by("ended", "batch_id").alias("ended"),
            F.collect_set(F.struct("range.topic", "range.partition")).alias("partitions"),
        )
        .first()
    )
    assert totals is not None
    if totals["last"] is None:
        return StreamProgress(0, False, None, None, ())
    watermarks = spark.read.format("delta").load(paths.table("watermarks")).groupBy("topic", "partition")
    newest_of: dict[tuple[str, int], int] = {
        (row["topic"], row["partition"]): row["tso"]
        for row in watermarks.agg(F.max("watermark_ts").alias("tso")).collect()
    }
    partitions = sorted((row["topic"], row["partition"]) for row in totals["partitions"] if row["topic"] is not None)
    # the last watermark of an ended topic is its last word; where nothing else is left it still counts
    partitions = [place for place in partitions if place[0] not in (totals["ended"] or ())] or partitions
    exact = bool(totals["exact"])
    told = {place: newest_of.get(place) for place in partitions}
    waiting = tuple(f"{topic}/{number}" for (topic, number), tso in told.items() if tso is None) if exact else ()
    if not exact or waiting:
        return StreamProgress(totals["last"], exact, None, None, waiting)
    tsos = {place: tso for place, tso in told.items() if tso is not None}
    topic, number = slowest = min(tsos, key=lambda place: tsos[place])
    return StreamProgress(totals["last"], exact, tsos[slowest], f"{topic}/{number}", (), newest_tso=max(tsos.values()))


def published_cut(spark: SparkSession, paths: LakePaths) -> PublishedCut:
    path = paths.table("consistent_cuts")
    return NO_CUT if table_state(spark, path) is None else _newest(spark.read.format("delta").load(path))


def cut_at(spark: SparkSession, paths: LakePaths, tso: int) -> PublishedCut:
    """The newest cut that is not beyond the TSO. Those before a rebuild are passed over: it may have put them right."""
    path = paths.table("consistent_cuts")
    if table_state(spark, path) is None:
        return NO_CUT
    cuts = cuts_since_rebuild(_with_rebuilt_tables(spark.read.format("delta").load(path)))
    partly = cuts.where("size(rebuilt_tables) > 0").agg(F.max("cut_id")).first()
    newest = cuts if partly is None or partly[0] is None else cuts.where(F.col("cut_id") >= partly[0])
    return _newest(newest.where(F.col("resolved_tso") <= tso))


def cuts_since_rebuild(cuts: DataFrame) -> DataFrame:
    """The rows of `consistent_cuts` from the newest rebuild on, which takes in everything anew; all where there was none."""
    rebuilt = cuts.where("rebuilt").agg(F.coalesce(F.max("cut_id"), F.lit(0)).alias("rebuilt_id"))
    return cuts.join(F.broadcast(rebuilt), F.col("cut_id") >= F.col("rebuilt_id")).drop("rebuilt_id")


def rebuilt_tables(cuts: DataFrame) -> DataFrame:
    """The tables of which single ones were rebuilt, by the newest cut that has them anew: database, table, rebuilt_id."""
    return (
        _with_rebuilt_tables(cuts)
        .select("cut_id", F.explode("rebuilt_tables").alias("found"))
        .groupBy("found.database", "found.table")
        .agg(F.max("cut_id").alias("rebuilt_id"))
    )


def _with_rebuilt_tables(cuts: DataFrame) -> DataFrame:
    """The cuts of a lake that was made before the column was there have it empty."""
    if "rebuilt_tables" in cuts.columns:
        return cuts
    return cuts.withColumn(
        "rebuilt_tables", F.expr("CAST(array() AS ARRAY<STRUCT<`database`: STRING, `table`: STRING>>)")
    )


def _newest(cuts: DataFrame) -> PublishedCut:
    row = cuts.orderBy(F.desc("cut_id")).limit(1).first()
    if row is None:
        return NO_CUT
    held = tuple(map(_held_table, row["held"]))
    return PublishedCut(
        row["cut_id"],
        row["resolved_tso"],
        row["last_batch"],
        tuple(row["mirrors"]),
        row["pending"],
        held,
        TableSelection.from_json(row["selection"]),
        _sources(row["sources"]),
    )


def _sources(rows: Iterable[Row]) -> Sources:
    found: dict[TableName, tuple[TableName, ...]] = {}
    for row in rows:
        mirror, source = (
            TableName(row["database"], row["table"]),
            TableName(row["upstream_database"], row["upstream_table"]),
        )
        found[mirror] = (*found.get(mirror, ()), source)
    return found


def _held_table(row: Row) -> HeldTable:
    name, cause = TableName(row["database"], row["table"]), (row["topic"], row["partition"], row["offset"])
    return HeldTable(name, cause, row["commit_ts"], row["sql"], row["rows"])
