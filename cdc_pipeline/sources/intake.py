"""Selects the records of a source that the lake does not have, and computes their offset ranges.

A record is identified by (topic, partition, offset). A second record at the same position is dropped if its key and value
are equal. Otherwise it is an error, because one of the two would be lost.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from cdc_pipeline.errors import SourceError
from cdc_pipeline.positions import POSITION
from cdc_pipeline.sources.compressed_values import may_be_compressed
from cdc_pipeline.sources.records import RECORD, may_have_zero_id
from cdc_pipeline.spark.jvm import balanced

_FINGERPRINT = "xxhash64(key, value, key IS NULL, value IS NULL)"
_SHOWN_LINES = 3


@dataclass(frozen=True)
class OffsetSpan:
    """Offsets of one partition."""

    topic: str
    partition: int
    first: int
    last: int
    """Inclusive."""


@dataclass(frozen=True)
class OffsetRange(OffsetSpan):
    """Offsets of one partition in a batch, with the number of their records."""

    records: int
    """May be less than `last - first + 1`: offsets can have gaps."""


def distinct_records(frame: DataFrame) -> DataFrame:
    """The records with one row per position. Columns: `RECORD`."""
    return frame.select(*RECORD.names).dropDuplicates(list(POSITION))


def offset_ranges(frame: DataFrame) -> tuple[OffsetRange, ...]:
    """The offset ranges of `frame`, ordered by topic and partition.

    Raises SourceError if two records at one position differ.
    """
    return ranges_and_note(frame)[0]


def ranges_and_note(frame: DataFrame, place: str | None = None) -> tuple[tuple[OffsetRange, ...], dict[str, bool]]:
    """`offset_ranges`, and fields of the batch's note, so that decoding need not check again:

    - `plain`: no value can be compressed
    - `zero_ids`: a message may have `id` 0 and no `_tidb`

    `place`: names the source if `frame` has the columns `_file` and `_unreadable` (`capture_files.reading.records`). Raises
    SourceError with file and text of some lines that are not records.
    """
    line = F.lit(None) if place is None else F.when(F.expr("_unreadable IS NOT NULL"), F.struct("_file", "_unreadable"))
    by_position = frame.groupBy(*POSITION).agg(
        F.min(F.expr(_FINGERPRINT)).alias("low"),
        F.max(F.expr(_FINGERPRINT)).alias("high"),
        F.min(line).alias("line"),
        *_value_conditions(),
    )
    rows = _rows_by_partition(
        by_position,
        F.min(F.when(F.col("low") != F.col("high"), F.col("offset"))).alias("conflict"),
        F.min("line").alias("line"),
        F.max("may_be_compressed").alias("may_be_compressed"),
        F.max("zero_ids").alias("zero_ids"),
    )
    if unreadable := [row["line"] for row in rows if row["line"] is not None]:
        raise _unreadable(unreadable[:_SHOWN_LINES], place)
    for row in rows:
        if row["conflict"] is not None:
            raise _conflict(
                row["topic"], row["partition"], row["conflict"], "the source has two records with different bytes"
            )
    found = {name: any(row[name] for row in rows) for name in ("may_be_compressed", "zero_ids")}
    return _ranges(rows), value_note(found)


def value_note(found: Mapping[str, Any]) -> dict[str, bool]:
    """The fields `plain` and `zero_ids` of a batch's note. `found`: whether any value meets each condition."""
    return {"plain": not found["may_be_compressed"], "zero_ids": bool(found["zero_ids"])}


def observe_values(frame: DataFrame) -> tuple[DataFrame, Observation]:
    """The frame, whose write finds out what `value_note` needs."""
    observation = Observation()
    return frame.observe(observation, *_value_conditions()), observation


def _value_conditions() -> tuple[Column, Column]:
    value = F.col("value")
    return F.max(may_be_compressed(value)).alias("may_be_compressed"), F.max(may_have_zero_id(value)).alias("zero_ids")


def ranges_and_conditions(
    frame: DataFrame, conditions: Mapping[str, Column]
) -> tuple[tuple[OffsetRange, ...], dict[str, bool]]:
    """The offset ranges of `frame`, ordered by topic and partition, and for each condition whether any record meets it.

    Positions in `frame` must be unique, and conditions must not be null. One query computes both.
    """
    rows = _rows_by_partition(frame, *(F.max(condition).alias(name) for name, condition in conditions.items()))
    return _ranges(rows), {name: any(row[name] for row in rows) for name in conditions}


def _rows_by_partition(frame: DataFrame, *aggregates: Column) -> list[Row]:
    """One row per partition, ordered by topic and partition: the fields of an `OffsetRange`, and the aggregates."""
    span = (F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records"))
    return frame.groupBy("topic", "partition").agg(*span, *aggregates).orderBy("topic", "partition").collect()


def _ranges(rows: Iterable[Row]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(row["topic"], row["partition"], row["first"], row["last"], row["records"]) for row in rows)


def new_records(frame: DataFrame, raw: DataFrame, ranges: tuple[OffsetRange, ...]) -> DataFrame:
    """The records of `frame` whose position is not in `raw`. `ranges`: those of `frame`, which limit the read of `raw`.

    Raises SourceError if a record differs from the one in `raw` at its position.
    """
    known = raw.where(_within(ranges)).select(*POSITION, F.expr(_FINGERPRINT).alias("_known"))
    both = frame.join(known, list(POSITION), "left")
    conflicts = both.where(f"_known IS NOT NULL AND _known <> {_FINGERPRINT}").select(*POSITION).limit(1).collect()
    for row in conflicts:
        raise _conflict(row["topic"], row["partition"], row["offset"], "the lake already has another record")
    return both.where("_known IS NULL").drop("_known")


def records_outside(frame: DataFrame, spans: Iterable[OffsetSpan]) -> DataFrame:
    """The records that lie in none of the spans."""
    return frame.where(~_within(spans))


def has_records_in(raw: DataFrame, ranges: tuple[OffsetRange, ...]) -> bool:
    """Whether `raw` has a record at an offset inside one of the ranges."""
    return not raw.where(_within(ranges)).isEmpty()


def _within(ranges: Iterable[OffsetSpan]) -> Column:
    topic, partition, offset = map(F.col, ("topic", "partition", "offset"))
    within = (
        (topic == span.topic) & (partition == span.partition) & offset.between(span.first, span.last) for span in ranges
    )
    return balanced(operator.or_, within, F.lit(False))


def _unreadable(lines: Iterable[Row], place: str | None) -> SourceError:
    shown = "; ".join(f"{unquote(line['_file'])}: {line['_unreadable'][:120]!r}" for line in lines)
    return SourceError(
        f"{place} has lines that are not a complete Kafka record, for example {shown}. Each line must be one JSON object "
        "with topic, partition, offset, ts, key and payload; the last line may be incomplete. Nothing was ingested"
    )


def _conflict(topic: str, partition: int, offset: int, problem: str) -> SourceError:
    return SourceError(
        f"{problem} at this position. If the topic was deleted and recreated, read it under another topic name or into "
        "another lake",
        topic=topic,
        partition=partition,
        offset=offset,
    )
