"""Shapes of messages, and whole messages for the rules that are checked once per shape.

A shape is a table, the columns of its rows and the kind of change. All messages of a shape have the same fields, so one
message per shape is validated. Each shape is validated again after 25 days of its stream, because types change under the
same column name, and encoders are upgraded.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decode import DialectName, dialect_and_form
from cdc_pipeline.dialects.envelope import HAS_PAYLOAD, parse_records
from cdc_pipeline.positions import BATCH_POSITION, BatchPosition
from cdc_pipeline.sources.compressed_values import decompressed, may_be_compressed
from cdc_pipeline.sources.records import records_at

_AGE_BITS = 31
"""2^31 ms are 24.9 days."""
_OTHER_FIELDS = (
    "mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>, version STRING, "
    "`schema` STRUCT<dataColumn: ARRAY<STRUCT<name: STRING, type: STRING>>, source: STRUCT<dbVersion: STRING>>, "
    "payload STRUCT<scn: STRING, timestamp: STRUCT<checkpointTime: BIGINT>, ddl: STRUCT<ddlMeta: STRING>>"
)
"""SQL schema of the fields that decoding does not read."""
_OTHER_PATHS = {
    "mysqlType": "mysqlType",
    "sqlType": "sqlType",
    "version": "version",
    "dataColumn": "schema.dataColumn",
    "dbVersion": "schema.source.dbVersion",
    "scn": "payload.scn",
    "checkpointTime": "payload.timestamp.checkpointTime",
    "ddlMeta": "payload.ddl.ddlMeta",
}
"""Field of a contract → its path in the message."""


@dataclass(frozen=True)
class Shape:
    number: int
    """Hash of the shape."""
    position: BatchPosition
    """Position of its first message."""


def shape_number(table: str) -> Column:
    """The hash of the shape of the message behind a row of the table; NULL for tables other than `change_log`,
    `ddl_history` and `watermarks`."""
    parts = {
        "change_log": _change_parts(),
        "ddl_history": [F.col("dialect"), F.col("kind"), F.col("type")],
        "watermarks": [F.lit(unified.WATERMARK)],
    }.get(table)
    return F.lit(None).cast("bigint") if parts is None else F.xxhash64(*parts, F.shiftright("es", _AGE_BITS))


def first_place() -> Column:
    """Aggregate: the position of the first of some rows."""
    return F.min(F.struct(*BATCH_POSITION))


def _change_parts() -> list[Column]:
    columns = F.map_keys(F.coalesce("after", "before"))
    return [*(F.col(name) for name in ("dialect", "database", "table", "op")), columns, F.col("key_names")]


@contextlib.contextmanager
def messages_at(raw: DataFrame, places: Iterable[BatchPosition]) -> Iterator[DataFrame]:
    """Yields the records of `raw_topic_snapshot` at these positions, decompressed and cached in memory until exit."""
    records = records_at(raw, places).persist()
    try:
        compressed = records.where(may_be_compressed(F.col("value"))).limit(1).count()
        yield records.withColumn("value", decompressed(F.col("value"))) if compressed else records
    finally:
        records.unpersist()


def complete_messages(raw: DataFrame, dialect: DialectName = "auto") -> DataFrame:
    """Each record of `raw` with all fields of the contracts in `contracts.sent_canal_json` and `contracts.sent_dataworks`,
    its `dialect` and its `form`.

    For few records: parses each three times. Of values only the JSON types are read.
    """
    name, form = dialect_and_form(dialect)
    text = F.col("value").cast("string")
    frame = parse_records(raw).withColumn("dialect", name).withColumn("form", form)
    fields = {"other": F.from_json(text, _OTHER_FIELDS, OPTIONS), "document": F.try_parse_json(text)}
    return frame.withColumns(fields).select(
        *frame.columns,
        *(F.col(f"other.{path}").alias(field) for field, path in _OTHER_PATHS.items()),
        _value_kinds().alias("valueKinds"),
    )


def _value_kinds() -> Column:
    """Column → the JSON type of its value in the first row of the message, or in DataWorks' last image."""
    paths = ("$.payload.after.dataColumn", "$.payload.before.dataColumn")
    image = F.coalesce(*(F.try_variant_get("document", path, "map<string, variant>") for path in paths))
    row = F.try_variant_get("document", "$.data[0]", "map<string, variant>")
    values = F.when(F.col(HAS_PAYLOAD), image).otherwise(row)
    return F.transform_values(values, lambda _, value: F.schema_of_variant(value))
