"""What is found when the rows of a step are looked at before they go into their mirror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.types.local_times import odd_gaps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class RowFindings:
    """Of rows of `merge_rows.with_computed`: how many there are, how many have a value that its type cannot hold (`bad`;
    `rejected` of them count as changes), how many the others are where the mirror has none before, how many dates are NULL
    because no calendar has them, and what the mirror has to say of all these rows."""

    identities: int
    bad: int
    rejected: int
    there: int
    zero_dates: int
    gaps: tuple[Gap, ...]


def row_findings(rows: DataFrame, *, keyless: bool) -> RowFindings:
    """One query over the rows."""
    there = (
        F.greatest("delta", F.lit(0)) if keyless else F.when(F.col("deleted") | F.col("only_if_there"), 0).otherwise(1)
    )
    good = F.size("bad") == 0
    bare = F.when(good & ~F.col("deleted"), F.col("bare"))
    counts = rows.agg(
        F.count("*").alias("identities"),
        F.count(F.when(~good, 1)).alias("bad"),
        F.count(F.when(~good & F.col("counts"), 1)).alias("rejected"),
        F.sum(F.when(good, there)).alias("there"),
        F.sum("zero_dates").alias("zero"),
        F.array_distinct(F.flatten(F.collect_set(F.when(F.size("lossy") > 0, F.col("lossy"))))).alias("lossy"),
        F.array_distinct(F.flatten(F.collect_set(F.when(F.size("unsure") > 0, F.col("unsure"))))).alias("unsure"),
        F.count_if("unsettled").alias("unsettled"),
        F.min(F.when(F.col("unsettled"), F.struct("_topic", "_partition", "_offset"))).alias("first_unsettled"),
        F.array_distinct(F.flatten(F.collect_set(F.when(F.size("odd_times") > 0, F.col("odd_times"))))).alias(
            "odd_times"
        ),
        F.count(bare).alias("bare"),
        F.min(bare).alias("first_bare"),
    ).first()
    assert counts is not None
    gaps = [Gap(GapKind.DAMAGED_TEXT, "the encoder has damaged its text", name) for name in sorted(counts["lossy"])]
    words = "what upstream computes is not sure for some rows"
    gaps += [Gap(GapKind.UNSURE_FORMULA, words, name) for name in sorted(counts["unsure"])]
    if counts["unsettled"]:
        topic, partition, offset = counts["first_unsettled"]
        words = (
            f"{counts['unsettled']} row(s) were changed over several partitions in one moment, such as at "
            f"{topic}/{partition}@{offset}: nothing tells which change came last"
        )
        gaps.append(Gap(GapKind.UNSURE_ORDER, words))
    gaps += odd_gaps(counts["odd_times"])
    if counts["bare"]:
        first = counts["first_bare"]
        words = (
            f"{counts['bare']} row(s) came with their handle key only, too large for a message, the first at "
            f"{first['topic']}/{first['partition']}@{first['offset']}: their other columns are as they were before, NULL "
            "where they were not known"
        )
        gaps.append(Gap(GapKind.HANDLE_KEY_ONLY, words))
    return RowFindings(
        counts["identities"],
        counts["bad"],
        counts["rejected"],
        counts["there"] or 0,
        counts["zero"] or 0,
        tuple(gaps),
    )
