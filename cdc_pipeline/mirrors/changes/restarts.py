"""Restarts of TiCDC inside one commit: of which stretch of a commit all changes come again.

A changefeed that restarts takes seconds and sends again all above its checkpoint (ticdc-facts §10): the commit that it was
at from its beginning, and the rows of other commits and tables that it had sent ahead. A sink that only pauses goes on
with what it has not sent. Both may put equal rows of a table without a key on both sides of the pause. So after a pause
the commit begins anew where all changes of the stretch before it come again, or, where the stretch after it is cut short,
none but those; and then

- where rows of other tables that had been sent ahead come again with it, that is sure;
- where they do not come again though their time is closed, it is none: the rows are others, but for a doubt (TiCDC may
  move a single table to another node, which sends that table alone again);
- where there are none, it is one: surely where two different changes or more come again, or where a watermark that does
  not advance lies in the pause (ticdc-facts §5); else with a doubt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.changes.copies import CHANGE, COMMIT, PARTITION, POSITION, image_hash

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

RESTART_MS = 1000
"""The least time in which a changefeed restarts. Messages of one transaction follow one another within milliseconds."""
RESUMED_MS = 100
"""The same where its checkpoint comes again in between. A changefeed sends a watermark again without a restart too."""
UNSURE_COPIES = Gap(
    GapKind.UNSURE_COPIES,
    "equal rows of one commit came seconds apart: one change that was delivered twice, or two, and nothing tells which",
)
_STRETCH = (*COMMIT, "breaks", "pauses")


def paused(earlier: dict[str, Column]) -> Column:
    """Whether the changefeed may have restarted before a row, of which `earlier` has the columns of the row before."""
    waited = F.col("ts") - earlier["ts"]
    resumed = F.col("resumed") > earlier["resumed"]
    late = (waited >= RESTART_MS) | (resumed & (waited >= RESUMED_MS))
    return has_trait(Trait.RESTARTS_FROM_CHECKPOINT) & (F.col("commit_ts") == earlier["commit_ts"]) & late


def with_closed(rows: DataFrame, watermarks: DataFrame) -> DataFrame:
    """`rows` with `closed`: a watermark at or above their `commit_ts` came before them in their partition."""
    so_far = Over.partitionBy(*PARTITION).orderBy("offset").rowsBetween(Over.unboundedPreceding, Over.currentRow)
    marks = watermarks.select(*PARTITION, "offset", "watermark_ts")
    both = rows.withColumns({"watermark_ts": F.lit(None).cast("bigint"), "is_row": F.lit(True)}).unionByName(
        marks, allowMissingColumns=True
    )
    closed = F.coalesce(F.max("watermark_ts").over(so_far) >= F.col("commit_ts"), F.lit(False))
    return both.withColumn("closed", closed).where("is_row").drop("watermark_ts", "is_row")


def with_resumptions(rows: DataFrame, watermarks: DataFrame, table: Collection[str]) -> DataFrame:
    """`rows` with `resumed`: how many watermarks before them are not above all those before these, and how many rows of
    their table (named by the columns `table`) are `closed`."""
    before = Over.partitionBy(*PARTITION).orderBy("offset").rowsBetween(Over.unboundedPreceding, -1)
    repeated = F.col("watermark_ts") <= F.max("watermark_ts").over(before)
    resumptions = (
        watermarks.select(*PARTITION, "offset", repeated.alias("repeated"))
        .where("repeated")
        .groupBy(*PARTITION)
        .agg(F.collect_list("offset").alias("resumptions"))
    )
    resumed = F.size(F.filter(F.coalesce("resumptions", F.array()), lambda at: at < F.col("offset")))
    of_table = Over.partitionBy(*PARTITION, *table).orderBy("offset", "row")
    found = rows.join(F.broadcast(resumptions), list(PARTITION), "left")
    return found.withColumn("resumed", resumed + F.sum(F.col("closed").cast("int")).over(of_table)).drop("resumptions")


def restarts(
    rows: DataFrame, copies: DataFrame, log: DataFrame, watermarks: DataFrame, resolved_tso: int | None
) -> DataFrame:
    """By commit, `breaks` and `pauses`: `restarts`, how many of the pauses so far are restarts, and `unsure`, whether
    nothing tells that of this one.

    `rows` are those of the tables of `copies`, `log` those of all tables, `watermarks` those of their partitions.
    """
    in_turn = Over.partitionBy(*COMMIT, "breaks").orderBy("pauses")
    sized = _stretches(rows, copies).localCheckpoint()
    all_again = F.col("shared") == F.lag("size").over(in_turn)
    may_be = all_again | (F.col("cut_short") & (F.col("shared") == F.col("size")))
    found = sized.withColumns(
        {
            "may_be": F.coalesce(may_be, F.lit(False)),
            "told": (all_again & (F.lag("different").over(in_turn) > 1))
            | (F.col("resumed") > F.lag("resumed").over(in_turn)),
        }
    ).drop("size", "shared", "cut_short", "different", "resumed")
    candidates = found.where("may_be")
    if candidates.isEmpty():
        return found.select(*_STRETCH, F.lit(0).alias("restarts"), F.lit(False).alias("unsure"))
    sent_ahead = _sent_ahead(log, candidates.transform(_with_end_of_time, watermarks), resolved_tso)
    found = found.join(sent_ahead, list(_STRETCH), "left").withColumns(
        {name: F.coalesce(name, F.lit(False)) for name in ("again", "gone", "told")}
    )
    begins = F.col("may_be") & (F.col("again") | ~F.col("gone"))
    unsure = F.col("may_be") & ~F.col("again") & (F.col("gone") | ~F.col("told"))
    return found.select(*_STRETCH, F.sum(begins.cast("int")).over(in_turn).alias("restarts"), unsure.alias("unsure"))


def _stretches(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """By stretch: `size`, the number of its changes, `different` ones of them, `shared`, how many of the stretch before
    come again, `cut_short`, and `resumed` where it begins.

    Places, each with offset and `ts`: `end` of the stretch before, its beginning (`at`), its `last` change, and the next
    change after a break or pause (`until`).
    """
    commits = F.broadcast(copies.select(*COMMIT).distinct())
    in_turn = Over.partitionBy(*COMMIT, "breaks").orderBy("pauses")
    one_change = Over.partitionBy(*COMMIT, "breaks", "op", "images").orderBy("pauses")
    counted = (
        rows.join(commits, list(COMMIT), "left_semi")
        .groupBy(*_STRETCH, "op", "images")
        .agg(
            F.count("*").alias("count"),
            F.max_by("cut_short", F.struct("offset", "row")).alias("cut_short"),
            F.max(F.struct("offset", "row", "ts", "until")).alias("last"),
            F.min(F.struct("offset", "ts")).alias("at"),
            F.min("resumed").alias("resumed"),
        )
        .withColumn("number", F.dense_rank().over(in_turn))
        .withColumns({"count_before": F.lag("count").over(one_change), "seen_in": F.lag("number").over(one_change)})
    )
    both = F.when(F.col("seen_in") == F.col("number") - 1, F.least("count", "count_before")).otherwise(0)
    sized = counted.groupBy(*_STRETCH).agg(
        F.sum("count").alias("size"),
        F.count("*").alias("different"),
        F.sum(both).alias("shared"),
        F.max_by("cut_short", "last").alias("cut_short"),
        F.min("resumed").alias("resumed"),
        F.max("last").alias("last"),
        F.min("at").alias("at"),
    )
    return sized.withColumns({"end": F.lag("last").over(in_turn), "until": F.col("last")["until"]})


def _with_end_of_time(stretches: DataFrame, watermarks: DataFrame) -> DataFrame:
    """`stretches` with `closed_at`: the offset of the watermark that closes their time."""
    marks = watermarks.select(*PARTITION, F.col("offset").alias("mark"), "watermark_ts")
    closing = stretches.select(*_STRETCH).join(F.broadcast(marks), list(PARTITION)).where("watermark_ts >= commit_ts")
    return stretches.join(closing.groupBy(*_STRETCH).agg(F.min("mark").alias("closed_at")), list(_STRETCH), "left")


def _sent_ahead(log: DataFrame, candidates: DataFrame, resolved_tso: int | None) -> DataFrame:
    """By stretch, of the rows of this time or a later one that its partition had before the pause, but for those of the
    commit: `again`, whether one comes again with the stretch, `gone`, whether one does not though its time is closed.

    Between two stretches lies a pause. A row of another table that lies there too was sent before the pause where the longer
    wait comes after the row. A row that comes again after the next pause tells of another restart; so may one that comes
    again after a watermark has closed the time of the commit, since a restart need not bring the commit again then.
    """
    one_change = Over.partitionBy(*CHANGE, *PARTITION).orderBy("offset", "row")
    partitions = F.broadcast(candidates.select(*PARTITION).distinct())
    rows = (
        log.join(partitions, list(PARTITION), "left_semi")
        .select(*POSITION, *CHANGE[:-1], "ts", image_hash("before", "after").alias("images"))
        .withColumn("next", F.lead(F.struct("offset", "ts")).over(one_change))
        .select(*PARTITION, "offset", "ts", "next", *(F.col(name).alias(f"{name}_ahead") for name in CHANGE[:3]))
    )
    same_commit = F.lit(True)
    for name in CHANGE[:3]:
        same_commit &= F.col(name) == F.col(f"{name}_ahead")
    next_one = F.col("next")
    ahead = _before_pause(F.struct("offset", "ts"), "end", "at") & (F.col("commit_ts_ahead") >= F.col("commit_ts"))
    again = ~_before_pause(next_one, "end", "at") & F.coalesce(_before_pause(next_one, "last", "until"), F.lit(True))
    again &= F.coalesce(next_one["offset"] < F.col("closed_at"), F.lit(True))
    closed = F.lit(False) if resolved_tso is None else F.col("commit_ts_ahead") <= resolved_tso
    stretches = F.broadcast(candidates.select(*_STRETCH, "at", "end", "last", "until", "closed_at"))
    return (
        rows.join(stretches, list(PARTITION))
        .where(ahead & ~same_commit)
        .groupBy(*_STRETCH)
        .agg(
            F.max(next_one.isNotNull() & again).alias("again"),
            F.max(next_one.isNull() & closed).alias("gone"),
        )
    )


def _before_pause(place: Column, end: str, beginning: str) -> Column:
    """Whether a place lies before the pause between the places `end` and `beginning`; null where there is no pause."""
    after_end = place["ts"] - F.col(end)["ts"]
    between = (place["offset"] < F.col(beginning)["offset"]) & (after_end < F.col(beginning)["ts"] - place["ts"])
    return F.when(F.col(beginning).isNotNull(), (place["offset"] < F.col(end)["offset"]) | between)
