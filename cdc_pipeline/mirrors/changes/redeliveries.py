"""Changes that a stream brings again: at least once in, exactly once out (DESIGN §2, promise 4).

A keyed table whose changes have exact TSOs needs none of this: the same change twice is one change of its key. Two
others do. Rows of a table without a key have no identity, so that a change sent twice is told from two equal ones only
by where it stands; and where order is by `es` alone, an old change would undo a newer one.

An encoder sends the changes of a table in the order of their commits. A new delivery begins:

- where that order steps back (a restart from a checkpoint, a retry; ticdc-facts §10);
- where Canal begins again, or sends batches again (`canal_deliveries`);
- inside one commit of TiCDC where the changefeed has restarted (`restarts`).

Equal changes inside one delivery are two; the n-th of them in a later delivery is the n-th of the first delivery, sent
again. What comes after a watermark that has closed its time is sent again, each copy by itself; so is a change of
DataWorks that has the number (`sequenceId`) of another.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from pyspark.sql import Window as Over
from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.lake.tables.ddl_history import DUPLICATE
from cdc_pipeline.mirrors.changes.canal_deliveries import (
    new_beginnings,
    with_beginnings,
    with_repetitions,
    without_late_clocks,
)
from cdc_pipeline.mirrors.changes.copies import CHANGE, COMMIT, PARTITION, POSITION, image_hash
from cdc_pipeline.mirrors.changes.restarts import UNSURE_COPIES, paused, restarts, with_closed, with_resumptions
from cdc_pipeline.mirrors.changes.row_filters import of_tables
from cdc_pipeline.mirrors.model.shards import source_columns
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame

    from cdc_pipeline.gaps import Gap
    from cdc_pipeline.mirrors.changes.window import Window
    from cdc_pipeline.mirrors.model.ddl_events import DdlEvent


@dataclass(frozen=True)
class Redeliveries:
    """The changes among `changes` that were delivered before. `log`, `watermarks` and `history` (`ddl_history`) are whole
    tables; `statements` are those that this cut carries out.

    With TSOs a row that its message names a key of needs no such look, but for those of `tables`: their mirrors have no key.
    """

    changes: DataFrame
    log: DataFrame
    watermarks: DataFrame
    history: DataFrame
    window: Window
    statements: Sequence[DdlEvent]
    tables: Collection[TableName] = ()

    @cached_property
    def _placed(self) -> DataFrame | None:
        """The changes that are there twice or more, with where they stand in their streams."""
        keyless = of_tables(self.tables) if self.tables else F.coalesce(F.size("key_names"), F.lit(0)) <= 0
        suspects = self.changes
        if self.window.resolved_tso is not None:
            suspects = suspects.where(keyless)
        copies = suspects.select(
            *POSITION,
            "batch_id",
            "dialect",
            "exact_ts",
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
        return self._with_places(copies).localCheckpoint()

    def _with_places(self, copies: DataFrame) -> DataFrame:
        """`copies` with `breaks`, `restarts` and `unsure`, and with `closed`."""
        numbered = F.max(has_trait(Trait.NUMBERS_BATCHES)).alias("numbered")
        known = copies.agg(F.min("batch_id").alias("oldest"), numbered, F.max("exact_ts").alias("exact")).first()
        assert known is not None
        decoded = F.col("batch_id").between(known["oldest"], self.window.last_batch)
        log, watermarks = self.log.where(decoded), self.watermarks.where(decoded)
        # each of the tables that are merged into one mirror is sent in an order of its own
        table = ("database", "table", *source_columns(log))
        rows = log.join(F.broadcast(copies.select(*PARTITION, *table).distinct()), [*PARTITION, *table], "left_semi")
        if not known["exact"]:
            rows = rows.withColumn("closed", F.lit(False))  # no watermark is of their times
        else:
            # of the older ones only the highest closes anything that a lower one does not
            earlier = self.watermarks.where(F.col("batch_id") < known["oldest"]).groupBy(*PARTITION)
            highest = earlier.agg(F.max("watermark_ts").alias("watermark_ts"), F.lit(-1).cast("bigint").alias("offset"))
            rows = with_closed(rows, watermarks.select(*highest.columns).unionByName(highest))
        if known["numbered"]:
            beginnings = new_beginnings(log, self._statements.where(decoded)).localCheckpoint()
            rows = with_beginnings(rows, beginnings)
            rows = with_repetitions(rows, log, beginnings, self._messages_with_statements())
        else:
            rows = rows.withColumns({"begun": F.lit(0), "repeats": F.lit(0), "may_repeat": F.lit(False)})
        rows = _stretches(with_resumptions(rows, watermarks, table), [*PARTITION, *table, "closed"])
        found = restarts(rows.where("NOT closed"), copies, log, watermarks, self.window.resolved_tso)
        placed = (
            copies.join(rows.select(*POSITION, "breaks", "pauses", "may_repeat", "closed"), list(POSITION))
            .join(found, [*COMMIT, "breaks", "pauses"], "left")
            .fillna({"restarts": 0, "unsure": False})
        )
        # equal rows with a key become one row, whichever it is; but one that came in an earlier delivery too is an old one
        one_change = Over.partitionBy(*CHANGE, *PARTITION)
        several = F.min("breaks").over(one_change) < F.max("breaks").over(one_change)
        return placed.withColumn("unsure", F.col("unsure") | (F.col("may_repeat") & (F.col("keyless") | several)))

    @property
    def _statements(self) -> DataFrame:
        """`ddl_history` with `message_id`, which a lake of 0.1.0 has not."""
        known = "message_id" in self.history.columns
        return self.history if known else self.history.withColumn("message_id", F.lit(None).cast("bigint"))

    def _messages_with_statements(self) -> DataFrame:
        """The messages of Canal (topic, ts, message_id) that have a statement which is none that came again."""
        earlier = self._statements.where((F.col("cut_id") < self.window.cut_id) & (F.col("status") != DUPLICATE))
        rows = [(event.topic, event.ts, event.message_id) for event in self.statements]
        fresh = small_frame(self.log.sparkSession, rows, "topic STRING, ts BIGINT, message_id BIGINT")
        return earlier.select(*fresh.columns).unionByName(fresh).where("message_id IS NOT NULL")

    @property
    def positions(self) -> DataFrame | None:
        """Their positions (`POSITION`); None where there are none."""
        return None if self._placed is None else _later_copies(_with_delivery(self._placed)).select(*POSITION)

    @property
    def gaps(self) -> dict[TableName, Gap]:
        """A gap for each table of which nothing tells whether equal changes are one that was delivered twice."""
        if self._placed is None:
            return {}
        unsure = self._placed.where("unsure AND NOT closed").select("database", "table").distinct().collect()
        return {TableName(row["database"], row["table"]): UNSURE_COPIES for row in unsure}


def _later_copies(delivered: DataFrame) -> DataFrame:
    """The copies that are not the first of their ordinal."""
    in_order = [F.col(name) for name in ("closed", "batch_id", *POSITION)]
    within = Over.partitionBy(*CHANGE, *PARTITION, "delivery").orderBy("offset", "row")
    among = Over.partitionBy(*CHANGE, "ordinal").orderBy(*in_order)
    numbered = delivered.withColumn("ordinal", F.row_number().over(within))
    return numbered.withColumn("nth", F.row_number().over(among)).where("nth > 1")


def _with_delivery(placed: DataFrame) -> DataFrame:
    """With `delivery`, which numbers the deliveries of a change in one partition."""
    one_change = Over.partitionBy(*CHANGE, *PARTITION).orderBy("offset", "row")
    before = {name: F.lag(name).over(one_change) for name in ("offset", "breaks", "restarts")}
    found = placed.withColumns({f"{name}_before": column for name, column in before.items()})
    by_itself = F.col("closed") | has_trait(Trait.NUMBERS_CHANGES)
    another = (F.col("breaks") != F.col("breaks_before")) | (F.col("restarts") != F.col("restarts_before")) | by_itself
    begins = F.col("offset_before").isNotNull() & another
    return found.withColumn("delivery", F.sum(begins.cast("int")).over(one_change))


def _stretches(rows: DataFrame, stream: Sequence[str]) -> DataFrame:
    """The rows of the copies' tables with `breaks`, how often their table's order has stepped back before them, `pauses`,
    how often the changefeed may have restarted inside one commit, and `until`, the place of the next of either.

    `stream` are the columns of a table's stream: rows of a time that a watermark has closed are one apart, since what is
    sent again of it says nothing of the others.
    """
    by_offset = Over.partitionBy(*stream).orderBy("offset", "row")
    earlier = {
        name: F.lag(name).over(by_offset) for name in ("commit_ts", "message_id", "ts", "resumed", "begun", "repeats")
    }
    back = (F.col("commit_ts") < earlier["commit_ts"]) | (F.col("message_id") < earlier["message_id"])
    begins = back | (F.col("begun") > earlier["begun"]) | (F.col("repeats") > earlier["repeats"])
    rows = rows.withColumns(
        {"back": F.coalesce(begins, F.lit(False)), "pause": F.coalesce(paused(earlier), F.lit(False))}
    )
    again = (F.col("message_id") < earlier["message_id"]) | (F.col("ts") < earlier["ts"])
    rows = without_late_clocks(rows, stream, again=again).withColumns(
        {
            "breaks": F.sum(F.col("back").cast("int")).over(by_offset),
            "pauses": F.sum(F.col("pause").cast("int")).over(by_offset),
        }
    )
    # what a watermark has closed is whole; without watermarks more of it may be about to come
    cut_short = F.lead("back").over(by_offset) | F.lead("pause").over(by_offset)
    # from the end: to the rows that follow Spark would go anew for each row
    from_end = Over.partitionBy(*stream).orderBy(F.col("offset").desc(), F.col("row").desc())
    following = from_end.rowsBetween(Over.unboundedPreceding, -1)
    until = F.min(F.when(F.col("back") | F.col("pause"), F.struct("offset", "ts"))).over(following)
    return rows.select(
        *POSITION,
        "ts",
        *CHANGE[:-1],
        image_hash("before", "after").alias("images"),
        "breaks",
        "pauses",
        "resumed",
        "may_repeat",
        "closed",
        F.coalesce(cut_short, ~F.col("exact_ts")).alias("cut_short"),
        until.alias("until"),
    ).localCheckpoint()
