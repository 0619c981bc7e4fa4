"""What of a source's records is new to the lake.

A record is identified by (topic, partition, offset). Records that the raw snapshot already has are dropped here; a
position that comes again with other bytes is an error that names it, because one of the two would vanish.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.sources.compressed_values import may_be_packed
from cdc_pipeline.sources.records import POSITION, RECORD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import Column, DataFrame, Row

_FINGERPRINT = "xxhash64(key, value, key IS NULL, value IS NULL)"


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of one partition in a batch, both ends included; `records` may be less than the span."""

    topic: str
    partition: int
    first: int
    last: int
    records: int


def require_readable(frame: DataFrame, place: str) -> None:
    """Raises SourceError with the file and the text of the first lines that are no records.

    `frame` has `_file` and `_unreadable` as `reading.records` gives them.
    """
    bad = frame.where("_unreadable IS NOT NULL").select("_file", "_unreadable").limit(3).collect()
    if bad:
        lines = "; ".join(f"{unquote(row['_file'])}: {row['_unreadable'][:120]!r}" for row in bad)
        raise SourceError(
            f"{place} has lines that are no whole Kafka record (one JSON object with topic, partition, offset, ts, key "
            f"and payload is expected; a last line may be torn): {lines}. Nothing was taken in"
        )


def distinct_records(frame: DataFrame) -> DataFrame:
    """One row per position, columns as `RECORD`, of records of which some may be there twice."""
    return frame.select(*RECORD.names).dropDuplicates(list(POSITION))


def offset_ranges(frame: DataFrame) -> tuple[OffsetRange, ...]:
    """The ranges of `frame` in (topic, partition) order. Raises SourceError where two records claim one position."""
    return ranges_and_plain(frame)[0]


def ranges_and_plain(frame: DataFrame) -> tuple[tuple[OffsetRange, ...], bool]:
    """`offset_ranges`, and whether no value can be a compressed one: told here, decoding need not look for itself."""
    by_position = frame.groupBy(*POSITION).agg(
        F.min(F.expr(_FINGERPRINT)).alias("low"),
        F.max(F.expr(_FINGERPRINT)).alias("high"),
        F.max(may_be_packed(F.col("value"))).alias("packed"),
    )
    rows = (
        by_position.groupBy("topic", "partition")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            F.min(F.when(F.col("low") != F.col("high"), F.col("offset"))).alias("conflict"),
            F.max("packed").alias("packed"),
        )
        .orderBy("topic", "partition")
        .collect()
    )
    for row in rows:
        if row["conflict"] is not None:
            _refuse(row["topic"], row["partition"], row["conflict"], "the source has two records with different bytes")
    return _ranges(rows), not any(row["packed"] for row in rows)


def counted_ranges(
    frame: DataFrame, conditions: Mapping[str, Column]
) -> tuple[tuple[OffsetRange, ...], dict[str, bool]]:
    """The ranges of records that have a position each, in (topic, partition) order; and of each condition, which is never
    null, whether any record meets it, by the same query."""
    rows = (
        frame.groupBy("topic", "partition")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            *(F.max(condition).alias(name) for name, condition in conditions.items()),
        )
        .orderBy("topic", "partition")
        .collect()
    )
    return _ranges(rows), {name: any(row[name] for row in rows) for name in conditions}


def _ranges(rows: Iterable[Row]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(row["topic"], row["partition"], row["first"], row["last"], row["records"]) for row in rows)


def not_yet_in(frame: DataFrame, raw: DataFrame, ranges: tuple[OffsetRange, ...]) -> DataFrame:
    """The rows of `frame` whose position `raw` does not have. `ranges` are those of `frame`, to read little of `raw`.

    Raises SourceError where `raw` has other bytes at a position.
    """
    known = raw.where(_within(ranges)).select(*POSITION, F.expr(_FINGERPRINT).alias("_known"))
    both = frame.join(known, list(POSITION), "left")
    other = both.where(f"_known IS NOT NULL AND _known <> {_FINGERPRINT}").select(*POSITION).limit(1).collect()
    for row in other:
        _refuse(row["topic"], row["partition"], row["offset"], "the lake already has another record")
    return both.where("_known IS NULL").drop("_known")


def _within(ranges: tuple[OffsetRange, ...]) -> Column:
    condition = F.lit(False)
    for span in ranges:
        condition = condition | (
            (F.col("topic") == span.topic)
            & (F.col("partition") == span.partition)
            & F.col("offset").between(span.first, span.last)
        )
    return condition


def _refuse(topic: str, partition: int, offset: int, what: str) -> None:
    raise SourceError(
        f"{what} at this position; if the topic was deleted and made again, read it as a topic of another name or into "
        "another lake",
        topic=topic,
        partition=partition,
        offset=offset,
    )
