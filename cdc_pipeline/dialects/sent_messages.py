"""Messages as they were sent, with the fields that decoding does not read: for the rules of `contracts.sent_canal_json`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.dialects.decode import told_apart
from cdc_pipeline.dialects.envelope import HAS_PAYLOAD, parsed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from cdc_pipeline.dialects.decode import DialectName

_MORE = (
    "mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>, version STRING, "
    "`schema` STRUCT<dataColumn: ARRAY<STRUCT<name: STRING, type: STRING>>, source: STRUCT<dbVersion: STRING>>, "
    "payload STRUCT<scn: STRING, timestamp: STRUCT<checkpointTime: BIGINT>, ddl: STRUCT<ddlMeta: STRING>>"
)
_PATHS = {
    "mysqlType": "mysqlType",
    "sqlType": "sqlType",
    "version": "version",
    "dataColumn": "schema.dataColumn",
    "dbVersion": "schema.source.dbVersion",
    "scn": "payload.scn",
    "checkpointTime": "payload.timestamp.checkpointTime",
    "ddlMeta": "payload.ddl.ddlMeta",
}
"""Field of a contract → where the message has it."""


def sent(raw: DataFrame, dialect: DialectName = "auto") -> DataFrame:
    """Each record of `raw` with all fields of the contracts of `contracts.sent_canal_json`, its `dialect` and its `form`.

    For few records: it parses each three times. Values are looked at by their JSON types only.
    """
    name, form = told_apart(dialect)
    text = F.col("value").cast("string")
    more = {field: F.col(f"more.{path}") for field, path in _PATHS.items()}
    frame = parsed(raw).withColumn("dialect", name).withColumn("form", form)
    return frame.withColumns({"more": F.from_json(text, _MORE, OPTIONS), "document": F.try_parse_json(text)}).select(
        *frame.columns,
        *(column.alias(field) for field, column in more.items()),
        _value_kinds().alias("valueKinds"),
    )


def _value_kinds() -> Column:
    """Column → the JSON type of its value in the first row of the message."""
    paths = ("$.payload.after.dataColumn", "$.payload.before.dataColumn")
    image = F.coalesce(*(F.try_variant_get("document", path, "map<string, variant>") for path in paths))
    row = F.try_variant_get("document", "$.data[0]", "map<string, variant>")
    values = F.when(F.col(HAS_PAYLOAD), image).otherwise(row)
    return F.transform_values(values, lambda _, value: F.schema_of_variant(value))
