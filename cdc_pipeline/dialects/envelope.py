"""The one parse of a record's JSON, and what can be said of it before any dialect looks at it.

The schema names every field that a dialect needs and no other, because each costs time on every message. Types come
from the contracts' models. `mysqlType` and `sqlType` are not among them: they are the same for all messages of a table
and are read from one message where they are needed (`dialects.message_types`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, LongType, StringType, StructField, StructType

from cdc_pipeline.contracts.canal_json import EXTENSION, PARTIAL_JSON, SENT, CanalMessage
from cdc_pipeline.contracts.dataworks import DataWorksMessage
from cdc_pipeline.contracts.json_text import END_MARK, OPTIONS, has_half_a_character, with_end_mark
from cdc_pipeline.contracts.limits import NESTING
from cdc_pipeline.dialects.claims import CONTENT
from cdc_pipeline.dialects.ticdc_storage import STORAGE_PATHS, with_storage_fields
from cdc_pipeline.dialects.unified import DEAD, EMPTY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# field of a contract → where the message has it; a field that is not here has its own name at the top
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
# what tells the dialects apart (`decode`), beside the fields of the contracts
HAS_PAYLOAD, BATCH = "has_payload", "id"
_MADE = (PARTIAL_JSON, EXTENSION, SENT)
_UNREADABLE = "_unreadable"
_OPTIONS = {**OPTIONS, "columnNameOfCorruptRecord": _UNREADABLE}


def _fields() -> dict[str, DataType]:
    """Field of a contract → its type, which a nested field has in the parse too."""
    found: dict[str, DataType] = {}
    for model in (CanalMessage, DataWorksMessage):
        found.update({name: column.dtype.type for name, column in model.to_schema().columns.items()})
    return {name: kind for name, kind in found.items() if name not in _MADE}


def _parse_schema(fields: dict[str, DataType]) -> StructType:
    tree: dict[str, Any] = {}
    for name, kind in fields.items():
        *folders, leaf = PATHS.get(name, name).split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[leaf] = kind
    tree.update({BATCH: LongType(), END_MARK: BooleanType(), _UNREADABLE: StringType()})
    return _struct(tree)


def _struct(tree: dict[str, Any]) -> StructType:
    return StructType(
        [StructField(name, _struct(kind) if isinstance(kind, dict) else kind) for name, kind in tree.items()]
    )


_FIELDS = _fields()
_SCHEMA = _parse_schema(_FIELDS)


def parsed(raw: DataFrame) -> DataFrame:
    """`raw` with the fields of all contracts, null where a message has none, and `unreadable`. Where `raw` has a column
    `claims.CONTENT`, that is parsed in place of `value`.

    `unreadable` is the rule that a record breaks as JSON; null where it is one object whose fields have their types.
    """
    message = F.col("message")
    fields = [F.col(f"message.{PATHS.get(name, name)}").alias(name) for name in _FIELDS]
    content = CONTENT if CONTENT in raw.columns else "value"
    no_message = F.col("isDdl").isNull() & F.col("es").isNull() & ~F.col(HAS_PAYLOAD)
    found = raw.withColumn("message", F.from_json(with_end_mark(F.col(content)), _SCHEMA, _OPTIONS)).select(
        *raw.columns,
        *fields,
        message[BATCH].alias(BATCH),
        _is_partial_json(content).alias(PARTIAL_JSON),
        message["_tidb"].isNotNull().alias(EXTENSION),
        message["payload"].isNotNull().alias(HAS_PAYLOAD),
        _unreadable_rule(content).alias("unreadable"),
    )
    return with_storage_fields(found, no_message)


def _is_partial_json(content: str) -> Column:
    """Whether a value of a JSON column is what MySQL logs under PARTIAL_JSON, such as `JSON_SET(…)`. No JSON begins so.

    Types are looked at only where a value begins so: next to no message has one.
    """
    suspect = F.contains(content, F.lit(b'"JSON_'))
    types = F.from_json(F.col(content).cast("string"), "mysqlType MAP<STRING, STRING>", OPTIONS)["mysqlType"]

    def is_expression(name: Column, text: Column) -> Column:
        return text.rlike(r"^JSON_[A-Z_]+\(") & (F.lower(F.trim(types[name])) == "json")

    found = F.exists(F.col("message.data"), lambda row: F.size(F.map_filter(row, is_expression)) > 0)
    return F.when(suspect, F.coalesce(found, F.lit(False))).otherwise(F.lit(False))


JSON_RULES = {
    "value_is_utf8": "the value is UTF-8",
    "value_is_json_object": "the value is one JSON object whose fields have the types of Canal-JSON or DataWorks, nested at "
    f"most {NESTING:,} levels deep",
    "escapes_are_characters": "no \\u escape is half of a surrogate pair",
}


def _unreadable_rule(content: str) -> Column:
    text, message = F.col(content).cast("string"), F.col("message")
    return (
        F.when(~F.is_valid_utf8(text), F.lit("value_is_utf8"))
        .when(
            message.isNull() | message[_UNREADABLE].isNotNull() | message[END_MARK].isNull(),
            F.lit("value_is_json_object"),
        )
        .when(has_half_a_character(text), F.lit("escapes_are_characters"))
    )


def is_empty() -> Column:
    """A tombstone (no value) or an empty value: counted, never an error."""
    return F.coalesce(F.length("value"), F.lit(0)) == 0


def base_kind(otherwise: Column) -> Column:
    """`EMPTY` for a record without a value, `DEAD` where `rule` names a broken rule, else `otherwise`."""
    return F.when(is_empty(), F.lit(EMPTY)).when(F.col("rule").isNotNull(), F.lit(DEAD)).otherwise(otherwise)
