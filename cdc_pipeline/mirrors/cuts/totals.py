"""What became of the row changes of a cut: the second half of promise 1 (DESIGN §2), kept with each cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.mirrors.changes.progress import cuts_since_rebuild

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cdc_pipeline.lake.paths import LakePaths


@dataclass(frozen=True)
class CutTotals:
    """Row changes. `changes` were taken in: `applied` are what mirrors show, `rejected` became dead letters, `duplicates`
    were delivered before, the others are `superseded` by later changes of the same row or of its whole table.

    `filtered` are those of tables that the pipeline does not include. `late` came after the mirrors had passed their
    time: `breaches` of them were never seen before, the others are re-deliveries. `pending` wait for the resolved TSO, and
    are counted anew with each cut.
    """

    changes: int
    applied: int
    rejected: int
    duplicates: int
    late: int
    breaches: int
    pending: int
    filtered: int = 0

    @property
    def superseded(self) -> int:
        return self.changes - self.applied - self.rejected - self.duplicates


NO_CHANGES = CutTotals(0, 0, 0, 0, 0, 0, 0)


@dataclass(frozen=True)
class LakeBalance:
    """All row changes that were decoded up to the newest cut, and what the cuts say of them."""

    decoded: int
    taken: int
    late: int
    pending: int
    filtered: int = 0

    @property
    def balanced(self) -> bool:
        return self.decoded == self.taken + self.late + self.filtered + self.pending


def lake_balance(spark: SparkSession, paths: LakePaths) -> LakeBalance:
    """Over all cuts since the newest rebuild, and all batches that they have looked at: a change that no cut has seen
    shows here."""
    cuts = spark.read.format("delta").load(paths.table("consistent_cuts"))
    totals = (
        cuts_since_rebuild(cuts)
        .agg(
            F.coalesce(F.sum("changes"), F.lit(0)).alias("taken"),
            F.coalesce(F.sum("late"), F.lit(0)).alias("late"),
            F.coalesce(F.sum("filtered"), F.lit(0)).alias("filtered"),
            F.coalesce(F.max_by("pending", "cut_id"), F.lit(0)).alias("pending"),
            F.coalesce(F.max("last_batch"), F.lit(0)).alias("last"),
        )
        .first()
    )
    assert totals is not None
    batches = spark.read.format("delta").load(paths.table("batches")).where(F.col("batch_id") <= totals["last"])
    decoded = batches.agg(F.coalesce(F.sum("row_changes"), F.lit(0)).alias("sum")).first()
    assert decoded is not None
    return LakeBalance(decoded["sum"], totals["taken"], totals["late"], totals["pending"], totals["filtered"])
