"""TiCDC Canal-JSON: default, with the TiDB extension, content-compatible, only-output-updated-columns,
delete-only-output-handle-key-columns, all versions since v4.0.

Which event a message is follows the document's own resolution (ticdc-canal-json "Data resolution on the consumer
side"): `isDdl` true is a DDL event; else `type` TIDB_WATERMARK is a watermark; else it is a row change. A row message
has exactly one row (ticdc-facts §1); INSERT and DELETE have it in `data`, UPDATE has the new row in `data` and the
former values in `old`, all of them by default and only the changed ones under only-output-updated-columns. Encoders before
v5.4 write `ts` 0, of an INSERT `old` [null], and of a DELETE its row in `old` as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import EXTENSION, WATERMARK_TYPE
from cdc_pipeline.contracts.rules import rules_of
from cdc_pipeline.contracts.sent_canal_json import TicdcDdlSent, TicdcRowSent, TicdcWatermarkSent
from cdc_pipeline.contracts.ticdc import KEY_RULE, TicdcDdl, TicdcRow, TicdcWatermark
from cdc_pipeline.dialects.dialect import Dialect, Form, MessageTypes, Trait, image, no_row
from cdc_pipeline.dialects.early_ticdc import with_bytes
from cdc_pipeline.dialects.envelope import BATCH
from cdc_pipeline.dialects.ticdc_storage import (
    STORAGE_FORM,
    STORAGE_FORMS,
    action_word,
    closed_ts,
    event_statement,
    is_storage_file,
    statement,
    ts_of_ms,
)
from cdc_pipeline.dialects.unified import DDL, ROW, TSO_SHIFT, WATERMARK

if TYPE_CHECKING:
    from pyspark.sql import Column, Row

_KEY_IS_THERE = next(rule.kept for rule in rules_of(TicdcRow) if rule.name == KEY_RULE)
_DDL, _WATERMARK, _ROW = "ticdc_ddl", "ticdc_watermark", "ticdc_row"
# integer type → one that holds its signed and its unsigned values, and the Java type by which TiCDC before v5.4, which never
# says `unsigned`, sends it whatever its sign
_OF_ANY_SIGN = {
    "tinyint": ("smallint", 5),
    "smallint": ("int", 4),
    "mediumint": ("int", None),
    "int": ("bigint", -5),
    "bigint": ("decimal(20,0)", 3),
}


def _certain() -> Column:
    return F.col(EXTENSION) | F.coalesce(F.col("type") == WATERMARK_TYPE, F.lit(False)) | is_storage_file()


def _recognised() -> Column:
    """With the extension by it; without it by `id`, which TiCDC always sets to 0 and Canal counts from 1."""
    return _certain() | (F.col(BATCH) == 0)


def _form() -> Column:
    return (
        F.when(is_storage_file(), F.col(STORAGE_FORM))
        .when(F.col("isDdl"), F.lit(_DDL))
        .when(F.col("type") == WATERMARK_TYPE, F.lit(_WATERMARK))
        .otherwise(F.lit(_ROW))
    )


def _columns() -> dict[str, Column]:
    op, commit_ts = F.col("type"), F.coalesce("commitTs", "tableVersion")
    watermark_ts = F.coalesce(F.col("watermarkTs"), closed_ts())
    data, old = (with_bytes(F.get(rows, F.lit(0))) for rows in ("data", "old"))
    # Before v5.4 a DELETE repeats its row in `old`; `data` has it in every version.
    before = F.when(op == "DELETE", data).when(op == "UPDATE", old)
    after = F.when(op == "DELETE", no_row()).otherwise(data)
    return {
        "database": F.coalesce("database", "definedDatabase"),
        "table": F.coalesce("table", "definedTable"),
        "type": F.coalesce(op, action_word()),
        "op": op,
        # Only a TSO orders exactly; without it the commit's millisecond stands in, with the counter at 0.
        "commit_ts": F.coalesce(commit_ts, ts_of_ms()),
        "exact_ts": commit_ts.isNotNull(),
        "watermark_ts": watermark_ts,
        "es": F.coalesce(F.col("es"), F.shiftright(F.coalesce(commit_ts, watermark_ts), TSO_SHIFT)),
        "ts": F.nullif("ts", F.lit(0)),
        "message_id": F.lit(None).cast("bigint"),
        "sql": F.coalesce(F.col("sql"), statement()),
        # a column selector may leave columns of the key out: these do not tell one row from another
        "key_names": F.when(F.expr(_KEY_IS_THERE), F.col("pkNames")),
        # a DELETE needs nothing else (ticdc-facts §3, §7)
        "only_key": F.coalesce("onlyHandleKey", F.lit(False)) & (op != "DELETE"),
        "rows": F.array(image(before, after)),
    }


def _types(message: Row) -> MessageTypes:
    """Types that hold all that the columns may have, where the message does not say it: in default mode how many bits a BIT
    has, before v5.4 the sign of an integer. Such a message has `ts` 0, or Java types that no signed integer has later."""
    types = {name: text or "" for name, text in (message["mysqlType"] or {}).items()}
    sql_types = message["sqlType"] or {}
    integers = {
        name: _OF_ANY_SIGN[word] for name, text in types.items() if (word := text.strip().lower()) in _OF_ANY_SIGN
    }
    if message["ts"] == 0 or any(
        code is not None and sql_types.get(name) == code for name, (_, code) in integers.items()
    ):
        types |= {name: wide for name, (wide, _) in integers.items()}
    return MessageTypes({name: "bit(64)" if text.strip().lower() == "bit" else text for name, text in types.items()})


TICDC = Dialect(
    "ticdc",
    _recognised,
    _certain,
    _form,
    (
        Form(_ROW, ROW, TicdcRow, TicdcRowSent),
        Form(_DDL, DDL, TicdcDdl, TicdcDdlSent),
        Form(_WATERMARK, WATERMARK, TicdcWatermark, TicdcWatermarkSent),
        *STORAGE_FORMS,
    ),
    _columns,
    _types,
    frozenset({Trait.FROM_TIDB, Trait.RESTARTS_FROM_CHECKPOINT}),
    event_statement,
)
