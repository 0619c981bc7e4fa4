"""How far a pipeline is: which batches are in, up to which TSO its streams are complete, which cut was published."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.lake.delta import progress, table_state
from cdc_pipeline.mirrors.settings.ddl_policy import HeldTable
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from cdc_pipeline.lake.paths import LakePaths
    from cdc_pipeline.mirrors.settings.selection import Sources


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
    new_row_changes: int = 0
    """Of the batches after those of the cut that it was asked for."""
    heartbeats: Mapping[str, int] = field(default_factory=dict)
    """Topic → the time of its newest heartbeat, in ms (DataWorks): up to then all its changes have come."""

    @property
    def oldest_heartbeat(self) -> tuple[int, str] | None:
        """How far the topic is that is farthest behind, of those that have heartbeats, and its name. None where there are
        TSOs: mirrors then go by watermarks, whatever a heartbeat says."""
        return None if self.exact else min(((ms, topic) for topic, ms in self.heartbeats.items()), default=None)

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
        if (heartbeat := self.oldest_heartbeat) is not None:
            return f"no heartbeat has come in {heartbeat[1]} since"
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
    heartbeats: Mapping[str, int] = field(default_factory=dict)

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


def stream_progress(spark: SparkSession, paths: LakePaths, published: PublishedCut = NO_CUT) -> StreamProgress:
    """Read from `batches` and `watermarks`. A topic that the newest batch calls ended holds nothing back.

    `published` is a cut that the streams have reached: of what came before it only its resolved TSO counts, which every
    partition has reached, so that little of both tables is read, however long they have become.
    """
    batches = spark.read.format("delta").load(paths.table("batches"))
    news = F.col("batch_id") > published.last_batch
    totals = (
        # the newest batch of the cut says what has ended, where no other has come
        batches.where(F.col("batch_id") >= published.last_batch)
        .agg(
            F.max("batch_id").alias("last"),
            F.max(F.col("exact_ts") & news).alias("exact"),
            F.max_by("ended", "batch_id").alias("ended"),
            F.collect_set(F.when(news, F.transform("offsets", _place))).alias("places"),
            F.coalesce(F.sum(F.when(news, F.col("row_changes"))), F.lit(0)).alias("row_changes"),
            F.collect_list(F.when(news & (F.size("heartbeats") > 0), F.col("heartbeats"))).alias("heartbeats"),
        )
        .first()
    )
    assert totals is not None
    if totals["last"] is None:
        return StreamProgress(published.last_batch, False, None, None, (), heartbeats=published.heartbeats)
    if totals["exact"] and published.cut_id and published.resolved_tso is None:
        return stream_progress(spark, paths)  # the first records with a TSO: each partition has to show how far it is
    newest_of = _newest_watermarks(spark, paths, published.resolved_tso)
    places = {(place["topic"], place["partition"]) for found in totals["places"] for place in found} | newest_of.keys()
    # the last watermark of an ended topic is its last word; where nothing else is left it still counts
    places = {place for place in places if place[0] not in (totals["ended"] or ())} or places
    exact = bool(totals["exact"]) or published.resolved_tso is not None
    told = {place: newest_of.get(place) for place in sorted(places)}
    waiting = tuple(f"{topic}/{number}" for (topic, number), tso in told.items() if tso is None) if exact else ()
    if waiting and published.cut_id:
        return stream_progress(spark, paths)  # a partition that is new, or has not come so far
    heartbeats = _newest_heartbeats([published.heartbeats, *totals["heartbeats"]], totals["ended"] or ())
    if not exact or waiting:
        return StreamProgress(
            totals["last"],
            exact,
            None,
            None,
            waiting,
            new_row_changes=totals["row_changes"],
            heartbeats=heartbeats,
        )
    tsos = {place: tso for place, tso in told.items() if tso is not None}
    topic, number = slowest = min(tsos, key=lambda place: tsos[place])
    return StreamProgress(
        totals["last"],
        exact,
        tsos[slowest],
        f"{topic}/{number}",
        (),
        newest_tso=max(tsos.values()),
        new_row_changes=totals["row_changes"],
        heartbeats=heartbeats,
    )


def _newest_heartbeats(told: Iterable[Mapping[str, int]], ended: Collection[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for heartbeats in told:
        for topic, ms in heartbeats.items():
            if topic not in ended:
                found[topic] = max(ms, found.get(topic, ms))
    return found


def _place(span: Column) -> Column:
    return F.struct(span["topic"], span["partition"])


def _newest_watermarks(spark: SparkSession, paths: LakePaths, least: int | None) -> dict[tuple[str, int], int]:
    """By topic and partition, of those that have one that is not below `least`."""
    watermarks = spark.read.format("delta").load(paths.table("watermarks"))
    if least is not None:
        watermarks = watermarks.where(F.col("watermark_ts") >= least)
    newest = watermarks.groupBy("topic", "partition").agg(F.max("watermark_ts").alias("tso"))
    return {(row["topic"], row["partition"]): row["tso"] for row in newest.collect()}


def published_cut(spark: SparkSession, paths: LakePaths) -> PublishedCut:
    """The newest cut. Of the table, which has a row for each cut that names all mirrors, the last file is read."""
    path = paths.table("consistent_cuts")
    if table_state(spark, path) is None:
        return NO_CUT
    cuts = spark.read.format("delta").load(path)
    committed = progress(spark, path, paths.writer("consistent_cuts"))
    newest = NO_CUT if committed is None else _newest(cuts.where(F.col("cut_id") >= committed))
    # a copy has no writers; a table that was taken back has not the cut that its writer has committed
    return _newest(cuts) if newest is NO_CUT else newest


def cut_at(spark: SparkSession, paths: LakePaths, tso: int) -> PublishedCut:
    """The newest cut that is not beyond the TSO. Those before a rebuild are passed over: it may have put them right."""
    path = paths.table("consistent_cuts")
    if table_state(spark, path) is None:
        return NO_CUT
    cuts = cuts_since_rebuild(spark.read.format("delta").load(path))
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
        cuts.select("cut_id", F.explode("rebuilt_tables").alias("found"))
        .groupBy("found.database", "found.table")
        .agg(F.max("cut_id").alias("rebuilt_id"))
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
        row["heartbeats"],
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
    return HeldTable(name, cause, row["commit_ts"], row["sql"], row["rows"], row["error"])
