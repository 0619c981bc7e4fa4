"""Counts and gaps of the rows of a step, found before they are written to their mirror."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.mysql.types.local_times import local_time_gaps
from cdc_pipeline.positions import POSITION, Position

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, Row


@dataclass(frozen=True)
class RowFindings:
    bad: int
    """Rows with a value that its type cannot hold."""
    rejected: int
    """Changes among the bad rows (`counts`)."""
    existing: int
    """Rows that an empty mirror has after the other rows are written."""
    deletes: int
    """Number of row images of a keyless table that lose rows; 0 for a table with a key."""
    zero_dates: int
    """Dates that are NULL because no calendar has them."""
    gaps: tuple[Gap, ...]


def row_findings(rows: DataFrame, *, keyless: bool) -> RowFindings:
    """Examines rows of `with_generated` in one query."""
    existing = (
        F.greatest("delta", F.lit(0)) if keyless else F.when(F.col("deleted") | F.col("update_only"), 0).otherwise(1)
    )
    good = F.size("bad") == 0
    key_only = F.when(good & ~F.col("deleted"), F.col("key_only_since"))
    unordered = F.when(F.col("order_unknown"), F.struct("_topic", "_partition", "_offset"))
    counts = rows.agg(
        F.count(F.when(~good, 1)).alias("bad"),
        F.count(F.when(~good & F.col("counts"), 1)).alias("rejected"),
        F.sum(F.when(good, existing)).alias("existing"),
        (F.count_if(good & (F.col("delta") < 0)) if keyless else F.lit(0)).alias("deletes"),
        F.sum("zero_dates").alias("zero"),
        *(_distinct(name).alias(name) for name in ("damaged", "doubtful", "ambiguous_times")),
        F.count_if("order_unknown").alias("unordered"),
        F.min(unordered).alias("first_unordered"),
        F.count(key_only).alias("key_only"),
        F.min(key_only).alias("first_key_only"),
    ).first()
    assert counts is not None
    return RowFindings(
        counts["bad"],
        counts["rejected"],
        counts["existing"] or 0,
        counts["deletes"],
        counts["zero"] or 0,
        tuple(_gaps(counts)),
    )


def _distinct(name: str) -> Column:
    """The distinct items of an array column over all rows."""
    return F.array_distinct(F.flatten(F.collect_set(F.when(F.size(name) > 0, F.col(name)))))


def _gaps(counts: Row) -> Iterator[Gap]:
    for name in sorted(counts["damaged"]):
        yield Gap(GapKind.DAMAGED_TEXT, "the encoder has damaged its text", name)
    for name in sorted(counts["doubtful"]):
        yield Gap(GapKind.UNSURE_FORMULA, "values of some rows may differ from what upstream computes", name)
    if counts["unordered"]:
        yield Gap(
            GapKind.UNSURE_ORDER,
            f"{counts['unordered']} row(s) were changed in several partitions at the same time, the first at "
            f"{Position(*counts['first_unordered'])}: the messages do not show which change was the last",
        )
    yield from local_time_gaps(counts["ambiguous_times"])
    if counts["key_only"]:
        first = counts["first_key_only"]
        yield Gap(
            GapKind.HANDLE_KEY_ONLY,
            f"{counts['key_only']} row(s) were too large for a message and were sent with their handle key only, the first "
            f"at {Position(*(first[name] for name in POSITION))}: their other columns keep the earlier values, or "
            "are NULL if there were none",
        )
