"""Reads the column types that messages name, from one message per group of rows that needs them.

All messages of a table name the same types until its definition changes, so decoding does not parse them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.dialects.claims import claim_messages
from cdc_pipeline.dialects.dialect import MessageTypes
from cdc_pipeline.dialects.traits import BY_NAME
from cdc_pipeline.positions import BATCH_POSITION, BatchPosition
from cdc_pipeline.sources.compressed_values import decompressed, may_be_compressed
from cdc_pipeline.sources.records import records_at

__all__ = ["MessageTypes", "read_message_types"]

_MESSAGE = (
    "ts BIGINT, mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>, _tidb STRUCT<claimCheckLocation: STRING>, "
    "`schema` STRUCT<dataColumn: ARRAY<STRUCT<name: STRING, type: STRING>>>"
)
"""SQL schema of the fields from which `Dialect.types` reads."""


def read_message_types(
    raw: Callable[[int, int], DataFrame],
    places: Mapping[BatchPosition, str],
    claims: Callable[[], DataFrame | None] = lambda: None,
) -> dict[BatchPosition, MessageTypes]:
    """Position → the types that its record names. A record that cannot be parsed is not in the result.

    `raw`: returns the rows of `raw_topic_snapshot` from one batch to another. `places`: position → dialect. `claims`:
    returns the table `claims`, or None if the lake has none; called only for references. Collects names and types of
    columns, no values.
    """
    if not places:
        return {}
    batches = [batch_id for batch_id, *_ in places]
    records = raw(min(batches), max(batches))
    messages = _parsed(records, places, F.col("value"))
    if compressed := [place for place, (_, is_compressed) in messages.items() if is_compressed]:
        messages |= _parsed(records, compressed, decompressed(F.col("value")))
    referring = [
        place
        for place, (message, _) in messages.items()
        if message is not None and message["_tidb"] is not None and message["_tidb"]["claimCheckLocation"] is not None
    ]
    if referring and (kept := claims()) is not None:
        messages |= _parsed(claim_messages(kept), referring, F.col("message"))
    return {
        place: BY_NAME[places[place]].types(message) for place, (message, _) in messages.items() if message is not None
    }


def _parsed(
    records: DataFrame, places: Iterable[BatchPosition], value: Column
) -> dict[BatchPosition, tuple[Row | None, bool]]:
    """Position → the parsed `value` of its record, and whether that may be compressed."""
    if not (positions := list(places)):
        return {}
    rows = (
        records_at(records, positions)
        .withColumn("_value", value)
        .select(
            F.struct(*BATCH_POSITION).alias("place"),
            F.from_json(F.col("_value").cast("string"), _MESSAGE, OPTIONS).alias("message"),
            may_be_compressed(F.col("_value")).alias("may_be_compressed"),
        )
        .collect()
    )
    return {tuple(row["place"]): (row["message"], row["may_be_compressed"]) for row in rows}
