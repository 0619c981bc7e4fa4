"""Shapes of messages: what has the same table, columns and kind, so that one message tells of the fields of all of them.

A shape is looked at anew every 25 days of its stream: types change without a column's name, and encoders are upgraded.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects import unified
from cdc_pipeline.sources.compressed_values import may_be_packed, opened
from cdc_pipeline.sources.places import PLACE, records_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.sources.places import Place

_AGE_BITS = 31
"""2^31 ms are 24.9 days."""


@dataclass(frozen=True)
class Shape:
    """One shape by its hash, and where the first of its messages is."""

    number: int
    place: Place


def shapes_of(table: str, rows: DataFrame) -> list[Shape]:
    """The shapes of the messages that gave these rows of `change_log`, `ddl_history` or `watermarks`; none of other tables.

    Nothing is collected but hashes and places.
    """
    parts = {
        "change_log": _of_rows(),
        "ddl_history": [F.col("dialect"), F.col("kind"), F.col("type")],
        "watermarks": [F.lit(unified.WATERMARK)],
    }.get(table)
    if parts is None:
        return []
    number = F.xxhash64(*parts, F.shiftright("es", _AGE_BITS))
    place = F.min(F.struct(*PLACE))
    found = rows.groupBy(number.alias("number")).agg(place.alias("place")).collect()
    return [Shape(row["number"], tuple(row["place"])) for row in found]


def _of_rows() -> list[Column]:
    columns = F.map_keys(F.coalesce("after", "before"))
    return [*(F.col(name) for name in ("dialect", "database", "table", "op")), columns, F.col("key_names")]


@contextlib.contextmanager
def messages_at(raw: DataFrame, places: Iterable[Place]) -> Iterator[DataFrame]:
    """The records of the raw snapshot at these places, their values opened where they may be compressed. They are kept in
    memory within it."""
    found = records_at(raw, places).persist()
    try:
        packed = found.where(may_be_packed(F.col("value"))).limit(1).count()
        yield found.withColumn("value", opened(F.col("value"))) if packed else found
    finally:
        found.unpersist()
