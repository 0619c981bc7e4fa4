"""Redelivered changes: at-least-once input, exactly-once mirrors (DESIGN §2, promise 4).

A keyed table whose changes have exact TSOs needs none of this, because the same change twice is one change of its key. Two
other cases do. Rows of a keyless table have no identity: only its place in the stream separates a redelivered row from a
second equal row. And where only `es` orders changes, a redelivered old change would undo a newer one.

An encoder sends the changes of a table in commit order. A new delivery starts

- where that order steps back: a restart from a checkpoint, or a retry (ticdc-facts §10);
- where Canal restarts or retries batches (`canal_deliveries`); what it resends with its former clock is recognized message
  by message (`kept_clocks`);
- inside one commit of TiCDC, where the changefeed restarted (`restarts`).

Equal changes inside one delivery are separate changes. The n-th of them in a later delivery is a redelivery of the n-th in
the first delivery. A late row is a delivery by itself, and so is each change of DataWorks, where the sequence number
(`sequenceId`) identifies redeliveries.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.lake.tables.ddl_history import DUPLICATE
from cdc_pipeline.mirrors.changes.row_filters import is_in_tables
from cdc_pipeline.mirrors.deliveries.canal_deliveries import (
    restart_times,
    unnumbered_starts,
    with_confirmed_starts,
    with_resend_count,
    with_restart_count,
    with_retry_count,
)
from cdc_pipeline.mirrors.deliveries.copies import CHANGE, COMMIT, PARTITION, ROW_POSITION, image_hash
from cdc_pipeline.mirrors.deliveries.kept_clocks import change_hash, sent_records, with_kept_clocks, with_kept_copies
from cdc_pipeline.mirrors.deliveries.restarts import (
    UNSURE_COPIES,
    commit_restarts,
    follows_pause,
    with_lateness,
    with_resume_signs,
)
from cdc_pipeline.mirrors.model.source_tables import source_columns
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent


@dataclass(frozen=True)
class Redeliveries:
    """Finds the redelivered changes among `changes`.

    With TSOs only keyless rows are searched: those whose messages name no key, or those of `tables` if given.
    """

    changes: DataFrame
    log: DataFrame
    """All of `change_log`."""
    table: Callable[[str], DataFrame]
    """Returns `watermarks` and `ddl_history`. Called only if a change occurs more than once."""
    window: Window
    statements: Sequence[DdlEvent]
    """The statements that this cut applies."""
    tables: Collection[TableName] = ()
    """Tables whose mirrors have no key, though their messages name one."""

    @cached_property
    def _copies(self) -> DataFrame | None:
        """The changes that occur more than once, with `is_kept_copy` (`kept_clocks`). The others have `delivery_starts`,
        `restarts`, `is_late` and `is_unsure`."""
        keyless = is_in_tables(self.tables) if self.tables else F.coalesce(F.size("key_names"), F.lit(0)) <= 0
        suspects = self.changes
        if self.window.resolved_tso is not None:
            suspects = suspects.where(keyless)
        copies = suspects.select(
            *ROW_POSITION,
            "batch_id",
            "dialect",
            "exact_ts",
            "ts",
            "message_id",
            *source_columns(self.log),
            *CHANGE[:-1],
            image_hash("before", "after").alias("images"),
            keyless.alias("keyless"),
        )
        repeated = copies.groupBy(*CHANGE).agg(F.count("*").alias("copies")).where("copies > 1")
        if repeated.isEmpty():
            return None
        # each step below reads the one before several times: without checkpoints the plan would double with each
        copies = copies.join(repeated, list(CHANGE), "left_semi").localCheckpoint()
        return self._with_deliveries(copies).localCheckpoint()

    def _with_deliveries(self, copies: DataFrame) -> DataFrame:
        """Adds the columns of `_copies`."""
        has_batch_numbers = F.max(has_trait(Trait.NUMBERS_BATCHES)).alias("has_batch_numbers")
        is_unnumbered = has_trait(Trait.NUMBERS_BATCHES) & F.col("message_id").isNull()
        span = copies.agg(
            F.min("batch_id").alias("oldest"),
            has_batch_numbers,
            F.max(is_unnumbered).alias("unnumbered"),
            F.max("exact_ts").alias("exact"),
        ).first()
        assert span is not None
        decoded = F.col("batch_id").between(span["oldest"], self.window.last_batch)
        watermarks = self.table("watermarks").where(decoded)
        sent = self._with_kept_copies(copies, decoded)
        kept, log = sent.where("is_kept_copy").select(*ROW_POSITION, "is_kept_copy"), sent.where("NOT is_kept_copy")
        # each source table of a merged mirror has a stream of its own
        table = ("database", "table", *source_columns(log))
        rows = log.join(F.broadcast(copies.select(*PARTITION, *table).distinct()), [*PARTITION, *table], "left_semi")
        if not span["exact"]:
            rows = rows.withColumn("is_late", F.lit(False))  # no watermark applies to their times
        else:
            # of the older watermarks only the highest matters
            earlier = self.table("watermarks").where(F.col("batch_id") < span["oldest"]).groupBy(*PARTITION)
            highest = earlier.agg(F.max("watermark_ts").alias("watermark_ts"), F.lit(-1).cast("bigint").alias("offset"))
            rows = with_lateness(rows, watermarks.select(*highest.columns).unionByName(highest))
        if span["has_batch_numbers"]:
            restarts = restart_times(sent, self.table("ddl_history").where(decoded)).localCheckpoint()
            rows = with_restart_count(rows, restarts)
            rows = with_retry_count(rows, log, restarts, self._ddl_messages())
        else:
            rows = rows.withColumns({"canal_restarts": F.lit(0), "retries": F.lit(0), "may_be_retry": F.lit(False)})
        if span["unnumbered"]:
            records = with_kept_clocks(sent_records(sent, self.table("ddl_history").where(decoded)))
            rows = with_resend_count(rows, unnumbered_starts(records))
        else:
            rows = rows.withColumn("resends", F.lit(0))
        rows = _with_delivery_starts(with_resume_signs(rows, watermarks, table), [*PARTITION, *table, "is_late"])
        found = commit_restarts(rows.where("NOT is_late"), copies, log, watermarks, self.window.resolved_tso)
        copies = (
            copies.join(
                rows.select(*ROW_POSITION, "delivery_starts", "pauses", "may_be_retry", "may_be_original", "is_late"),
                list(ROW_POSITION),
                "left",
            )
            .join(found, [*COMMIT, "delivery_starts", "pauses"], "left")
            .join(kept, list(ROW_POSITION), "left")
            .fillna(0, ["restarts"])
            .fillna(False, ["is_unsure", "is_late", "may_be_retry", "may_be_original", "is_kept_copy"])
        )
        # equal rows with a key are one row in any case, but a copy of an earlier delivery may undo a newer change
        one_change = Over.partitionBy(*CHANGE, *PARTITION)
        in_several = F.min("delivery_starts").over(one_change) < F.max("delivery_starts").over(one_change)
        may_be_copy = F.col("may_be_retry") & (F.col("keyless") | in_several)
        may_be_original = F.col("may_be_original") & in_several
        return copies.withColumn("is_unsure", F.col("is_unsure") | may_be_copy | may_be_original)

    def _with_kept_copies(self, copies: DataFrame, decoded: Column) -> DataFrame:
        """The rows of `log` in these batches, with the columns of `with_kept_clocks`."""
        log = self.log.where(decoded)
        numbered = copies.where(has_trait(Trait.NUMBERS_BATCHES) & F.col("ts").isNotNull())
        equal = numbered.groupBy(*CHANGE, *PARTITION, "ts").agg(F.count_distinct("offset").alias("messages"))
        if equal.where("messages > 1").isEmpty():
            return log.withColumns({"is_kept_copy": F.lit(False), "kept_clocks": F.lit(0)})
        return with_kept_copies(log, self.table("ddl_history").where(decoded))

    def _ddl_messages(self) -> DataFrame:
        """The messages of Canal (topic, ts, message_id) whose statements are no redeliveries."""
        earlier = self.table("ddl_history").where(
            (F.col("cut_id") < self.window.cut_id) & (F.col("status") != DUPLICATE)
        )
        rows = [(event.topic, event.ts, event.message_id) for event in self.statements]
        new = small_frame(self.log.sparkSession, rows, "topic STRING, ts BIGINT, message_id BIGINT")
        return earlier.select(*new.columns).unionByName(new).where("message_id IS NOT NULL")

    @property
    def positions(self) -> DataFrame | None:
        """The positions (`ROW_POSITION`) of the redelivered changes; None if there are none."""
        if self._copies is None:
            return None
        kept, others = self._copies.where("is_kept_copy"), self._copies.where("NOT is_kept_copy")
        found = _redelivered(_with_delivery_number(others)).select(*ROW_POSITION)
        return found.unionByName(kept.select(*ROW_POSITION))

    @property
    def gaps(self) -> dict[TableName, Gap]:
        """A gap for each table with equal changes that may or may not be redeliveries."""
        if self._copies is None:
            return {}
        unsure = self._copies.where("is_unsure AND NOT is_late").select("database", "table").distinct().collect()
        return {TableName(row["database"], row["table"]): UNSURE_COPIES for row in unsure}


def _redelivered(copies: DataFrame) -> DataFrame:
    """All copies but the first of each ordinal (n-th equal change of a delivery)."""
    in_order = [F.col(name) for name in ("is_late", "batch_id", *ROW_POSITION)]
    one_delivery = Over.partitionBy(*CHANGE, *PARTITION, "delivery").orderBy("offset", "row")
    one_ordinal = Over.partitionBy(*CHANGE, "ordinal").orderBy(*in_order)
    numbered = copies.withColumn("ordinal", F.row_number().over(one_delivery))
    return numbered.withColumn("nth", F.row_number().over(one_ordinal)).where("nth > 1")


def _with_delivery_number(copies: DataFrame) -> DataFrame:
    """Adds `delivery`, which numbers the deliveries of a change in one partition."""
    one_change = Over.partitionBy(*CHANGE, *PARTITION).orderBy("offset", "row")
    previous = {name: F.lag(name).over(one_change) for name in ("offset", "delivery_starts", "restarts")}
    found = copies.withColumns({f"previous_{name}": column for name, column in previous.items()})
    is_alone = F.col("is_late") | has_trait(Trait.NUMBERS_CHANGES)
    differs = (
        (F.col("delivery_starts") != F.col("previous_delivery_starts"))
        | (F.col("restarts") != F.col("previous_restarts"))
        | is_alone
    )
    starts = F.col("previous_offset").isNotNull() & differs
    return found.withColumn("delivery", F.sum(starts.cast("int")).over(one_change))


def _with_delivery_starts(rows: DataFrame, stream: Sequence[str]) -> DataFrame:
    """Adds the place of each row among the deliveries and pauses of its stream.

    - `delivery_starts`: how many deliveries started, up to this row
    - `pauses`: how many pauses, up to this row, may be a restart of the changefeed
    - `next_start`: position (`offset`, `ts`) of the next row that starts a delivery or follows a pause
    - `may_be_original`: of `with_confirmed_starts`
    - `may_be_incomplete`: the next row starts a delivery or follows a pause, or no watermark completes the row's commit

    `stream`: the columns that identify a table's stream. Late rows are a stream of their own, because their redelivery
    proves nothing about other rows.
    """
    by_offset = Over.partitionBy(*stream).orderBy("offset", "row")
    counts = ("resume_signs", "canal_restarts", "retries", "kept_clocks", "resends")
    previous = {name: F.lag(name).over(by_offset) for name in ("commit_ts", "message_id", "ts", *counts)}
    # a lower number where Canal resends with its former clock starts no delivery: `kept_clocks` has found those copies
    renumbers = (F.col("message_id") < previous["message_id"]) & (F.col("kept_clocks") == previous["kept_clocks"])
    steps_back = (F.col("commit_ts") < previous["commit_ts"]) | renumbers
    is_resent = F.col("resends") > previous["resends"]
    is_retry = F.col("retries") > previous["retries"]
    starts = steps_back | is_resent | (F.col("canal_restarts") > previous["canal_restarts"]) | is_retry
    rows = rows.withColumns(
        {
            "starts_delivery": F.coalesce(starts, F.lit(False)),
            "follows_pause": F.coalesce(follows_pause(previous), F.lit(False)),
            "change": change_hash(),
        }
    )
    is_certain = renumbers | is_resent | (F.col("ts") < previous["ts"])
    rows = with_confirmed_starts(rows, stream, is_certain=is_certain, is_retry=is_retry).withColumns(
        {
            "delivery_starts": F.sum(F.col("starts_delivery").cast("int")).over(by_offset),
            "pauses": F.sum(F.col("follows_pause").cast("int")).over(by_offset),
        }
    )
    # a watermark completes a commit; without watermarks more of it may still arrive
    is_cut_off = F.lead("starts_delivery").over(by_offset) | F.lead("follows_pause").over(by_offset)
    # ordered from the end: over following rows Spark would evaluate the frame again for each row
    from_end = Over.partitionBy(*stream).orderBy(F.col("offset").desc(), F.col("row").desc())
    following = from_end.rowsBetween(Over.unboundedPreceding, -1)
    is_start = F.col("starts_delivery") | F.col("follows_pause")
    next_start = F.min(F.when(is_start, F.struct("offset", "ts"))).over(following)
    return rows.select(
        *ROW_POSITION,
        "ts",
        *CHANGE[:-1],
        image_hash("before", "after").alias("images"),
        "delivery_starts",
        "pauses",
        "resume_signs",
        "may_be_retry",
        "may_be_original",
        "is_late",
        F.coalesce(is_cut_off, ~F.col("exact_ts")).alias("may_be_incomplete"),
        next_start.alias("next_start"),
    ).localCheckpoint()
