"""TiCDC's storage sink (ticdc-facts §6): the two kinds of records that are no Canal-JSON message, and what a file's place
says of the rows in it.

A schema file is a DDL statement, its TSO the table version; one without a statement is a table's definition as it was
then. The file `metadata` is the checkpoint: all changes up to it are in files that were written before.

Rows have no `_tidb` unless the changefeed sets enable-tidb-extension. Then only the ms of their commit is known, and two
things follow. A row that stands below a version of its own ms was committed after the statement of that version, so that
its `commit_ts` is put right behind it. And a checkpoint in the middle of a ms does not say which rows of that ms are in:
it closes the ms before (the source marks such a checkpoint by the header `CLOSES_MS`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import SENT
from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.contracts.storage_files import TicdcSchemaFile, TicdcStorageCheckpoint, TicdcStorageFile
from cdc_pipeline.dialects.dialect import Form, as_sent
from cdc_pipeline.dialects.storage_definition import statement_of
from cdc_pipeline.dialects.unified import DDL, TSO_SHIFT, WATERMARK
from cdc_pipeline.sources.storage.layout import CLOSES_MS, FILE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

STORAGE_PATHS = {
    "definedDatabase": "Schema",
    "definedTable": "Table",
    "tableVersion": "TableVersion",
    "statement": "Query",
    "actionType": "Type",
    "definedColumns": "TableColumns",
    "checkpointTs": "checkpoint-ts",
}
"""Field of a contract → where the file has it."""
STORAGE_FORM = "storage_form"
"""The column that names the form of a record that is one of these files; null for all others."""
_DEFINITION, _CHECKPOINT = "ticdc_storage_definition", "ticdc_storage_checkpoint"
STORAGE_FORMS = (
    Form(_DEFINITION, DDL, TicdcSchemaFile),
    Form(_CHECKPOINT, WATERMARK, TicdcStorageCheckpoint),
)
# the folder of a version, with at most a physical table id and a date below it
_VERSION = r"(?:^|/)(\d{18,19})/(?:[^/]*/){0,2}CDC[^/]*$"
# TiDB's ActionType → the word that TiCDC's Canal-JSON has for it (ticdc-facts §4)
_TYPES = {
    "CREATE": (3,),
    "ERASE": (4,),
    "CINDEX": (7, 9, 32),
    "DINDEX": (8, 10, 33),
    "TRUNCATE": (11,),
    "RENAME": (14, 47),
    "ALTER": (5, 6, 12, 13, 15, 17, 18, 19, 20, 22, 23, 37, 38, 41, 61, 64, 71, 72),
}
_ANY_OTHER = "QUERY"


def with_storage_fields(parsed: DataFrame, no_message: Column) -> DataFrame:
    """`parsed` with the fields of `TicdcStorageFile`, null where a record is another kind of message, and `STORAGE_FORM`.

    A second parse, of those records only that are `no_message`: they are few, and the first is paid by all.
    """
    form = F.when(
        no_message,
        F.when(F.contains("value", F.lit(b'"TableVersion"')), F.lit(_DEFINITION)).when(
            F.contains("value", F.lit(b'"checkpoint-ts"')), F.lit(_CHECKPOINT)
        ),
    )
    fields = TicdcStorageFile.to_schema().columns
    kinds = {name: column.dtype.type.simpleString() for name, column in fields.items() if name != SENT}
    schema = ", ".join(f"`{STORAGE_PATHS[name]}` {kind}" for name, kind in kinds.items())
    text = F.when(F.col(STORAGE_FORM).isNotNull(), F.col("value").cast("string"))
    return (
        parsed.withColumn(STORAGE_FORM, form)
        .withColumn("storage_file", F.from_json(text, schema, OPTIONS))
        .select(
            *parsed.columns, STORAGE_FORM, *(F.col("storage_file")[STORAGE_PATHS[name]].alias(name) for name in kinds)
        )
    )


def is_storage_file() -> Column:
    return F.col(STORAGE_FORM).isNotNull()


def statement() -> Column:
    """The statement of a schema file, or the whole file where it has none (`storage_definition`)."""
    has_one = F.length("statement") > 0
    return F.when(
        F.col(STORAGE_FORM) == _DEFINITION, F.when(has_one, F.col("statement")).otherwise(F.col("value").cast("string"))
    )


def event_statement(event: Row) -> str | None:
    """The event's statement. A schema file of the storage sink has no `ts`; any message has one."""
    sql = as_sent(event)
    if sql is None or event["ts"] is not None:
        return sql
    try:
        return statement_of(sql)
    except Exception:  # whatever one file holds, it stops nothing but itself: its text is no statement that is known
        return sql


def action_word() -> Column:
    """The `type` that the same statement has in a message."""
    word = F.when(F.col("actionType").isNotNull(), F.lit(_ANY_OTHER))
    for name, numbers in _TYPES.items():
        word = F.when(F.col("actionType").isin(*numbers), F.lit(name)).otherwise(word)
    return F.when(F.length("statement") == 0, F.lit("CREATE")).otherwise(word)


def closed_ts() -> Column:
    """The TSO up to which a checkpoint says that all changes are there."""
    before = F.shiftleft(F.shiftright("checkpointTs", TSO_SHIFT), TSO_SHIFT) - 1
    return F.when(_header(CLOSES_MS).isNotNull(), before).otherwise(F.col("checkpointTs"))


def ts_of_ms() -> Column:
    """The `commit_ts` of a message that says only the ms of its commit: `es << 18`, and where it stands in a file below a
    version of that ms right behind the version."""
    version = F.regexp_extract(_header(FILE).cast("string"), _VERSION, 1).try_cast("bigint")
    same = F.shiftright(version, TSO_SHIFT) == F.col("es")
    return F.when(same, version + 1).otherwise(F.shiftleft("es", TSO_SHIFT))


def _header(name: str) -> Column:
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]
