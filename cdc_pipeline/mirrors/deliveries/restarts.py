"""Which pauses inside one commit are restarts of the TiCDC changefeed.

A changefeed that restarts takes seconds, then resends everything above its checkpoint (ticdc-facts §10): the current
commit from its start, and the rows of other commits and tables that it had already sent. A sink that only pauses
continues with unsent rows. Both can put equal rows of a keyless table on both sides of the pause.

A pause is a possible restart if the part of the commit after it repeats all changes of the part before it. A part that may
be incomplete may repeat fewer changes, but no other ones. For a possible restart, look at rows of other commits and tables
that were sent before the pause (rows ahead):

- If one is resent with the part, the pause is certainly a restart.
- If one is not resent though its TSO is resolved, the pause is not a restart. The table still gets a gap, because TiCDC can
  move a single table to another node, which resends that table alone.
- If there are none, the pause is a restart. The table gets a gap, unless two or more different changes are repeated or a
  watermark that does not advance lies in the pause (ticdc-facts §5).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mirrors.deliveries.copies import CHANGE, COMMIT, PARTITION, ROW_POSITION, image_hash

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import Column, DataFrame

RESTART_MS = 1000
"""A restart of a changefeed takes at least this long. Messages of one transaction are milliseconds apart."""
RESUMED_MS = 100
"""The same if its checkpoint is resent in between. That alone proves nothing: a watermark can repeat without a restart."""
UNSURE_COPIES = Gap(
    GapKind.UNKNOWN_DUPLICATES,
    "equal rows of one commit arrived more than once, as redeliveries or as separate rows; the messages do not show which: "
    "compare the table with upstream",
)
COPIES_WITH_FIRST_TSOS = Gap(
    GapKind.UNKNOWN_DUPLICATES,
    "the table has no key, and the stream's first TSOs are in this cut: rows that it sent again, with a TSO now, count "
    "twice; compare the table with upstream",
)
"""For a stream whose earlier cuts had no TSOs: the time of a row is another one when it is sent again with its TSO."""
_PART = (*COMMIT, "delivery_starts", "pauses")
"""Identifies a part of a commit: the rows between two starts of a delivery or pauses."""


def follows_pause(previous: dict[str, Column]) -> Column:
    """Whether the changefeed may have restarted before a row. `previous` holds columns of the row before it."""
    waited = F.col("ts") - previous["ts"]
    is_resumed = F.col("resume_signs") > previous["resume_signs"]
    is_long = (waited >= RESTART_MS) | (is_resumed & (waited >= RESUMED_MS))
    return has_trait(Trait.RESTARTS_FROM_CHECKPOINT) & (F.col("commit_ts") == previous["commit_ts"]) & is_long


def with_lateness(rows: DataFrame, watermarks: DataFrame) -> DataFrame:
    """Adds `is_late`: a watermark at or above the row's `commit_ts` came before it in its partition."""
    so_far = Over.partitionBy(*PARTITION).orderBy("offset").rowsBetween(Over.unboundedPreceding, Over.currentRow)
    marks = watermarks.select(*PARTITION, "offset", "watermark_ts")
    both = rows.withColumns({"watermark_ts": F.lit(None).cast("bigint"), "is_row": F.lit(True)}).unionByName(
        marks, allowMissingColumns=True
    )
    is_late = F.coalesce(F.max("watermark_ts").over(so_far) >= F.col("commit_ts"), F.lit(False))
    return both.withColumn("is_late", is_late).where("is_row").drop("watermark_ts", "is_row")


def with_resume_signs(rows: DataFrame, watermarks: DataFrame, table: Collection[str]) -> DataFrame:
    """Adds `resume_signs`: how many signs precede a row that the changefeed resumed from its checkpoint.

    Signs are watermarks of the partition that do not advance, and late rows (`is_late`) of the row's table, which the
    columns `table` identify. A late row counts itself.
    """
    before = Over.partitionBy(*PARTITION).orderBy("offset").rowsBetween(Over.unboundedPreceding, -1)
    is_repeated = F.col("watermark_ts") <= F.max("watermark_ts").over(before)
    repeated = (
        watermarks.select(*PARTITION, "offset", is_repeated.alias("is_repeated"))
        .where("is_repeated")
        .groupBy(*PARTITION)
        .agg(F.collect_list("offset").alias("repeated_at"))
    )
    signs = F.size(F.filter(F.coalesce("repeated_at", F.array()), lambda at: at < F.col("offset")))
    one_table = Over.partitionBy(*PARTITION, *table).orderBy("offset", "row")
    joined = rows.join(F.broadcast(repeated), list(PARTITION), "left")
    late_rows = F.sum(F.col("is_late").cast("int")).over(one_table)
    return joined.withColumn("resume_signs", signs + late_rows).drop("repeated_at")


def commit_restarts(
    rows: DataFrame, copies: DataFrame, log: DataFrame, watermarks: DataFrame, resolved_tso: int | None
) -> DataFrame:
    """One row per part of a commit (`_PART`): `restarts`, how many restarts come before the part, and `is_unsure`, whether
    the pause before it is doubtful.

    `rows` holds the rows of the tables of `copies`, `log` those of all tables, `watermarks` those of their partitions.
    """
    in_order = Over.partitionBy(*COMMIT, "delivery_starts").orderBy("pauses")
    parts = _commit_parts(rows, copies).localCheckpoint()
    repeats_all = F.col("repeated") == F.lag("size").over(in_order)
    may_be = repeats_all | (F.col("may_be_incomplete") & (F.col("repeated") == F.col("size")))
    found = parts.withColumns(
        {
            "may_be_restart": F.coalesce(may_be, F.lit(False)),
            "is_proven": (repeats_all & (F.lag("different").over(in_order) > 1))
            | (F.col("resume_signs") > F.lag("resume_signs").over(in_order)),
        }
    ).drop("size", "repeated", "may_be_incomplete", "different", "resume_signs")
    candidates = found.where("may_be_restart")
    if candidates.isEmpty():
        return found.select(*_PART, F.lit(0).alias("restarts"), F.lit(False).alias("is_unsure"))
    rows_ahead = _rows_ahead(log, candidates.transform(_with_closing_offset, watermarks), resolved_tso)
    found = found.join(rows_ahead, list(_PART), "left").withColumns(
        {name: F.coalesce(name, F.lit(False)) for name in ("ahead_resent", "ahead_missing", "is_proven")}
    )
    is_restart = F.col("may_be_restart") & (F.col("ahead_resent") | ~F.col("ahead_missing"))
    is_unsure = F.col("may_be_restart") & ~F.col("ahead_resent") & (F.col("ahead_missing") | ~F.col("is_proven"))
    count = F.sum(is_restart.cast("int")).over(in_order)
    return found.select(*_PART, count.alias("restarts"), is_unsure.alias("is_unsure"))


def _commit_parts(rows: DataFrame, copies: DataFrame) -> DataFrame:
    """One row per part of the commits of `copies`.

    - `size`: number of changes; `different`: number of different ones; `repeated`: how many of the part before it it
      repeats
    - `may_be_incomplete`: more of the part may be missing or still to come
    - `resume_signs`: of its first row
    - `previous_end`, `start`, `end`, `next_start`: positions with `offset` and `ts`, where `previous_end` is the last change
      of the part before, and `next_start` the first change of the stream after the part's `end` that starts a delivery or
      follows a pause
    """
    commits = F.broadcast(copies.select(*COMMIT).distinct())
    in_order = Over.partitionBy(*COMMIT, "delivery_starts").orderBy("pauses")
    one_change = Over.partitionBy(*COMMIT, "delivery_starts", "op", "images").orderBy("pauses")
    counted = (
        rows.join(commits, list(COMMIT), "left_semi")
        .groupBy(*_PART, "op", "images")
        .agg(
            F.count("*").alias("count"),
            F.max_by("may_be_incomplete", F.struct("offset", "row")).alias("may_be_incomplete"),
            F.max(F.struct("offset", "row", "ts", "next_start")).alias("end"),
            F.min(F.struct("offset", "ts")).alias("start"),
            F.min("resume_signs").alias("resume_signs"),
        )
        .withColumn("part", F.dense_rank().over(in_order))
        .withColumns(
            {"previous_count": F.lag("count").over(one_change), "previous_part": F.lag("part").over(one_change)}
        )
    )
    is_adjacent = F.col("previous_part") == F.col("part") - 1
    repeated = F.when(is_adjacent, F.least("count", "previous_count")).otherwise(0)
    parts = counted.groupBy(*_PART).agg(
        F.sum("count").alias("size"),
        F.count("*").alias("different"),
        F.sum(repeated).alias("repeated"),
        F.max_by("may_be_incomplete", "end").alias("may_be_incomplete"),
        F.min("resume_signs").alias("resume_signs"),
        F.max("end").alias("end"),
        F.min("start").alias("start"),
    )
    return parts.withColumns({"previous_end": F.lag("end").over(in_order), "next_start": F.col("end")["next_start"]})


def _with_closing_offset(parts: DataFrame, watermarks: DataFrame) -> DataFrame:
    """Adds `closing_offset`: of the first watermark in the partition at or above the commit's TSO."""
    marks = watermarks.select(*PARTITION, F.col("offset").alias("mark"), "watermark_ts")
    closing = parts.select(*_PART).join(F.broadcast(marks), list(PARTITION)).where("watermark_ts >= commit_ts")
    return parts.join(closing.groupBy(*_PART).agg(F.min("mark").alias("closing_offset")), list(_PART), "left")


def _rows_ahead(log: DataFrame, candidates: DataFrame, resolved_tso: int | None) -> DataFrame:
    """By part, what became of the rows ahead: rows that its partition received before the pause, with this TSO or a later
    one, other than those of the commit.

    `ahead_resent`: one of them is resent with the part. `ahead_missing`: one is never resent, though its TSO is resolved.

    A row of another table between two parts counts as sent before the pause if the wait after it is the longer one. A row
    resent after the next pause belongs to another restart. So may a row resent after the watermark that closes the commit's
    time, because a restart from there need not resend the commit.
    """
    one_change = Over.partitionBy(*CHANGE, *PARTITION).orderBy("offset", "row")
    partitions = F.broadcast(candidates.select(*PARTITION).distinct())
    rows = (
        log.join(partitions, list(PARTITION), "left_semi")
        .select(*ROW_POSITION, *CHANGE[:-1], "ts", image_hash("before", "after").alias("images"))
        .withColumn("next", F.lead(F.struct("offset", "ts")).over(one_change))
        .select(*PARTITION, "offset", "ts", "next", *(F.col(name).alias(f"{name}_ahead") for name in CHANGE[:3]))
    )
    same_commit = F.lit(True)
    for name in CHANGE[:3]:
        same_commit &= F.col(name) == F.col(f"{name}_ahead")
    next_copy = F.col("next")
    is_ahead = _is_before_pause(F.struct("offset", "ts"), "previous_end", "start") & (
        F.col("commit_ts_ahead") >= F.col("commit_ts")
    )
    is_resent = ~_is_before_pause(next_copy, "previous_end", "start") & F.coalesce(
        _is_before_pause(next_copy, "end", "next_start"), F.lit(True)
    )
    is_resent &= F.coalesce(next_copy["offset"] < F.col("closing_offset"), F.lit(True))
    is_resolved = F.lit(False) if resolved_tso is None else F.col("commit_ts_ahead") <= resolved_tso
    parts = F.broadcast(candidates.select(*_PART, "start", "previous_end", "end", "next_start", "closing_offset"))
    return (
        rows.join(parts, list(PARTITION))
        .where(is_ahead & ~same_commit)
        .groupBy(*_PART)
        .agg(
            F.max(next_copy.isNotNull() & is_resent).alias("ahead_resent"),
            F.max(next_copy.isNull() & is_resolved).alias("ahead_missing"),
        )
    )


def _is_before_pause(position: Column, end: str, start: str) -> Column:
    """Whether a position lies before the pause between the positions `end` and `start`; NULL if there is no pause."""
    after_end = position["ts"] - F.col(end)["ts"]
    is_nearer_to_end = (position["offset"] < F.col(start)["offset"]) & (after_end < F.col(start)["ts"] - position["ts"])
    return F.when(F.col(start).isNotNull(), (position["offset"] < F.col(end)["offset"]) | is_nearer_to_end)
