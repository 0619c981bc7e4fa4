"""Parses the JSON of each record once, for all dialects, and checks the rules of JSON itself.

The schema has only the fields that some dialect needs, because each field costs time on every message. Types come from the
contracts. `mysqlType` and `sqlType` are missing: all messages of a table have the same types, so `dialects.message_types`
reads them from one message when they are needed. `dialects.canal` reads the names in them.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from cdc_pipeline.contracts.canal_json import EXTENSION, NO_KEY, PARTIAL_JSON, READ_BY, SENT, CanalMessage
from cdc_pipeline.contracts.dataworks import DataWorksMessage
from cdc_pipeline.contracts.json_text import END_MARK, OPTIONS, fractions_as_text, has_unpaired_surrogate, with_end_mark
from cdc_pipeline.contracts.limits import NESTING
from cdc_pipeline.dialects.claims import CONTENT
from cdc_pipeline.dialects.ticdc_storage import STORAGE_PATHS, with_storage_fields
from cdc_pipeline.dialects.topic_tables import DECLARED, with_declared
from cdc_pipeline.dialects.unified import DEAD, EMPTY

PATHS = {
    "commitTs": "_tidb.commitTs",
    "watermarkTs": "_tidb.watermarkTs",
    "onlyHandleKey": "_tidb.onlyHandleKey",
    "claimCheckLocation": "_tidb.claimCheckLocation",
    "dbType": "schema.source.dbType",
    "dbName": "schema.source.dbName",
    "schemaName": "schema.source.schemaName",
    "tableName": "schema.source.tableName",
    "primaryKey": "schema.primaryKey",
    "op": "payload.op",
    "before": "payload.before.dataColumn",
    "after": "payload.after.dataColumn",
    "sequenceId": "payload.sequenceId",
    "eventTime": "payload.timestamp.eventTime",
    "systemTime": "payload.timestamp.systemTime",
    "ddlText": "payload.ddl.text",
    **STORAGE_PATHS,
}
"""Field of a contract → its path in the message. All other fields are at the top level under their own name."""
HAS_PAYLOAD, BATCH, ZERO_IS_CANAL = "has_payload", "id", "zero_is_canal"
"""Columns that distinguish the dialects: whether the message has `payload`, its `id` (Canal's batch number), and whether a
message of its topic with `id` 0 is Canal's (`dialects.senders`)."""
MESSAGE = "message_bytes"
"""The bytes that were parsed."""
_DERIVED = (PARTIAL_JSON, EXTENSION, NO_KEY, SENT, READ_BY)
_UNREADABLE = "_unreadable"
_OPTIONS = {**OPTIONS, "columnNameOfCorruptRecord": _UNREADABLE}


def _fields() -> dict[str, DataType]:
    """Field of a contract → its type."""
    fields: dict[str, DataType] = {}
    for model in (CanalMessage, DataWorksMessage):
        fields.update({name: column.dtype.type for name, column in model.to_schema().columns.items()})
    return {name: type_ for name, type_ in fields.items() if name not in _DERIVED}


def _parse_schema(fields: dict[str, DataType]) -> StructType:
    tree: dict[str, Any] = {}
    for name, type_ in fields.items():
        *parents, leaf = PATHS.get(name, name).split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = type_
    tree.update({BATCH: LongType(), END_MARK: BooleanType(), _UNREADABLE: StringType()})
    return _struct(tree)


def _struct(tree: dict[str, Any]) -> StructType:
    return StructType(
        [StructField(name, _struct(node) if isinstance(node, dict) else node) for name, node in tree.items()]
    )


_FIELDS = _fields()
_ROWS = "ARRAY<MAP<STRING, STRING>>"
_SCHEMA = _parse_schema(_FIELDS)


def parse_records(raw: DataFrame) -> DataFrame:
    """`raw` with the fields of all contracts (null if the message lacks them), and `unreadable`.

    Parses the column `claims.CONTENT` if `raw` has it, else `value`. `ZERO_IS_CANAL` is false and `READ_BY` null if
    `raw` lacks it. With `topic_tables.DECLARED`, messages of Flink get the fields that they lack.
    `unreadable`: the rule of `JSON_RULES` that the record breaks; null if it is one JSON object whose fields have the types
    of the contracts.
    """
    message = F.col("message")
    fields = {name: F.col(f"message.{PATHS.get(name, name)}") for name in _FIELDS}
    if DECLARED in raw.columns:
        fields = with_declared(fields)
    content = CONTENT if CONTENT in raw.columns else "value"
    fields |= {name: _exact_rows(name, content) for name in ("data", "old")}
    read_by = [] if READ_BY in raw.columns else [F.lit(None).cast("array<bigint>").alias(READ_BY)]
    no_message = F.col("isDdl").isNull() & F.col("es").isNull() & ~F.col(HAS_PAYLOAD)
    frame = raw.withColumn("message", F.from_json(with_end_mark(F.col(content)), _SCHEMA, _OPTIONS)).select(
        *raw.columns,
        *(field.alias(name) for name, field in fields.items()),
        *read_by,
        message[BATCH].alias(BATCH),
        F.col(content).alias(MESSAGE),
        _is_partial_json(content).alias(PARTIAL_JSON),
        _has_null_key(content).alias(NO_KEY),
        message["_tidb"].isNotNull().alias(EXTENSION),
        message["payload"].isNotNull().alias(HAS_PAYLOAD),
        _unreadable_rule(content).alias("unreadable"),
    )
    if ZERO_IS_CANAL not in raw.columns:
        frame = frame.withColumn(ZERO_IS_CANAL, F.lit(False))
    return with_storage_fields(frame, no_message)


def _exact_rows(field: str, content: str) -> Column:
    """The rows of `data` or `old`, with numbers as they are written.

    Only senders without batch numbers (Flink, InLong) write numbers: no other message is searched or parsed again.
    """
    rows = F.col(f"message.{field}")
    exact = F.from_json(fractions_as_text(F.col(content).cast("string")), f"{field} {_ROWS}", OPTIONS)[field]
    return F.when(rows.isNotNull() & F.col(f"message.{BATCH}").isNull(), F.coalesce(exact, rows)).otherwise(rows)


def _is_partial_json(content: str) -> Column:
    """Whether a JSON column has an expression such as `JSON_SET(…)` instead of a value (canal-facts 30).

    No JSON value begins like that. A cheap search comes first: almost no message needs its types parsed.
    """
    may_be_partial = F.contains(content, F.lit(b'"JSON_'))
    types = F.from_json(F.col(content).cast("string"), "mysqlType MAP<STRING, STRING>", OPTIONS)["mysqlType"]

    def is_expression(name: Column, text: Column) -> Column:
        return text.rlike(r"^JSON_[A-Z_]+\(") & (F.lower(F.trim(types[name])) == "json")

    is_partial = F.exists(F.col("message.data"), lambda row: F.size(F.map_filter(row, is_expression)) > 0)
    return F.when(may_be_partial, F.coalesce(is_partial, F.lit(False))).otherwise(F.lit(False))


def _has_null_key(content: str) -> Column:
    """Whether `pkNames` is null in the message's text, and not absent."""
    texts = (b'"pkNames":null', b'"pkNames": null')
    return F.col("message.pkNames").isNull() & reduce(or_, (F.contains(content, F.lit(text)) for text in texts))


JSON_RULES = {
    "value_is_utf8": "the value is UTF-8",
    "value_is_json_object": "the value is one JSON object whose fields have the types of Canal-JSON or DataWorks, nested at "
    f"most {NESTING:,} levels deep",
    "escapes_are_characters": "no \\u escape is an unpaired surrogate",
}
"""Rule of JSON itself → its text."""


def _unreadable_rule(content: str) -> Column:
    text, message = F.col(content).cast("string"), F.col("message")
    return (
        F.when(~F.is_valid_utf8(text), F.lit("value_is_utf8"))
        .when(
            message.isNull() | message[_UNREADABLE].isNotNull() | message[END_MARK].isNull(),
            F.lit("value_is_json_object"),
        )
        .when(has_unpaired_surrogate(text), F.lit("escapes_are_characters"))
    )


def is_empty() -> Column:
    """Whether the record is a tombstone (null value) or has an empty value."""
    return F.coalesce(F.length("value"), F.lit(0)) == 0


def base_kind(otherwise: Column) -> Column:
    """`EMPTY` for a record without value, `DEAD` if `rule` is not null, else `otherwise`."""
    return F.when(is_empty(), F.lit(EMPTY)).when(F.col("rule").isNotNull(), F.lit(DEAD)).otherwise(otherwise)
