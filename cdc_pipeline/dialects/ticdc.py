"""TiCDC Canal-JSON, all versions since v4.0 and all modes: default, with the TiDB extension, content-compatible,
only-output-updated-columns, delete-only-output-handle-key-columns.

The event type follows ticdc-canal-json "Data resolution on the consumer side": a message with `isDdl` true is a DDL event;
else `type` TIDB_WATERMARK is a watermark; all others are row changes. A row change has exactly one row (ticdc-facts §1, §3):

- INSERT: the new row in `data`
- DELETE: the deleted row in `data`
- UPDATE: the new row in `data`, before values in `old`: of all columns by default, of the changed ones under
  only-output-updated-columns

Encoders before v5.4 write `ts` 0, `old` `[null]` for an INSERT, and the deleted row in both `data` and `old`.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import EXTENSION, WATERMARK_TYPE
from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.contracts.rules import model_rules
from cdc_pipeline.contracts.sent_canal_json import TicdcDdlSent, TicdcRowSent, TicdcWatermarkSent
from cdc_pipeline.contracts.ticdc import KEY_RULE, TicdcDdl, TicdcRow, TicdcWatermark
from cdc_pipeline.dialects import ticdc_storage
from cdc_pipeline.dialects.dialect import Dialect, Form, MessageTypes, Trait, mysql_type, no_row, row_images
from cdc_pipeline.dialects.envelope import BATCH, MESSAGE, ZERO_IS_CANAL
from cdc_pipeline.dialects.unified import DDL, ROW, TSO_SHIFT, WATERMARK
from cdc_pipeline.mysql.ddl.tokens import Quoting
from cdc_pipeline.mysql.types.charsets import LOST_BYTE

_KEY_IS_IN_DATA = next(rule.condition for rule in model_rules(TicdcRow) if rule.name == KEY_RULE)
_DDL, _WATERMARK, _ROW = "ticdc_ddl", "ticdc_watermark", "ticdc_row"
_SIGN_UNKNOWN = {
    "tinyint": ("smallint", 5),
    "smallint": ("int", 4),
    "mediumint": ("int", None),
    "int": ("bigint", -5),
    "bigint": ("decimal(20,0)", 3),
}
"""Integer type → a type for its signed and unsigned values, and its `sqlType` before v5.4, signed or unsigned.

Before v5.4 TiCDC never writes `unsigned`. MEDIUMINT has the same `sqlType` in all versions.
"""
# v4.0.16 and v5.0 to v5.3.4 announce BINARY as CHAR (1) and VARBINARY as VARCHAR (12)
_BYTES_TYPES, _TEXT_CODES = ("binary", "varbinary"), (1, 12)
_REPLACEMENT_CHARACTER = "\ufffd"
_LOST_BYTE = r"(?<!\\)((?:\\\\)*)\\ufffd"
"""The escape U+FFFD, not preceded by an escape."""


def _surely_matches() -> Column:
    return (
        F.col(EXTENSION) | F.coalesce(F.col("type") == WATERMARK_TYPE, F.lit(False)) | ticdc_storage.is_storage_file()
    )


def _matches() -> Column:
    """Without the TiDB extension `id` decides: TiCDC always writes 0 and one row (ticdc-facts §1), Canal counts from 1.

    Other services that write Canal's format also write 0: `dialects.senders` finds their topics.
    """
    has_several_rows = F.coalesce(F.size("data") > 1, F.lit(False))
    return _surely_matches() | ((F.col(BATCH) == 0) & ~F.col(ZERO_IS_CANAL) & ~has_several_rows)


def _form() -> Column:
    return (
        F.when(ticdc_storage.is_storage_file(), F.col(ticdc_storage.STORAGE_FORM))
        .when(F.col("isDdl"), F.lit(_DDL))
        .when(F.col("type") == WATERMARK_TYPE, F.lit(_WATERMARK))
        .otherwise(F.lit(_ROW))
    )


def _columns() -> dict[str, Column]:
    op, commit_ts = F.col("type"), F.coalesce("commitTs", "tableVersion")
    watermark_ts = F.coalesce(F.col("watermarkTs"), ticdc_storage.closed_ts())
    data, old = (_with_latin1_bytes(F.get(_with_lost_bytes(rows), F.lit(0))) for rows in ("data", "old"))
    # A DELETE has its row in `data` in every version. Before v5.4 `old` repeats it.
    before = F.when(op == "DELETE", data).when(op == "UPDATE", old)
    after = F.when(op == "DELETE", no_row()).otherwise(data)
    return {
        "database": F.coalesce("database", "definedDatabase"),
        "table": F.coalesce("table", "definedTable"),
        "type": F.coalesce(op, ticdc_storage.action_type()),
        "op": op,
        # without a TSO: the commit's ms with a counter of 0
        "commit_ts": F.coalesce(commit_ts, ticdc_storage.commit_ts_without_tso()),
        "at": F.coalesce(commit_ts, ticdc_storage.commit_ts_without_tso()),
        "exact_ts": commit_ts.isNotNull(),
        "watermark_ts": watermark_ts,
        "es": F.coalesce(F.col("es"), F.shiftright(F.coalesce(commit_ts, watermark_ts), TSO_SHIFT)),
        "ts": F.nullif("ts", F.lit(0)),
        "message_id": F.lit(None).cast("bigint"),
        "sql": F.coalesce(F.col("sql"), ticdc_storage.statement()),
        # where a column selector drops a key column, the remaining ones do not identify a row
        "key_names": F.when(F.expr(_KEY_IS_IN_DATA), F.col("pkNames")),
        # the handle key is all that a DELETE needs (ticdc-facts §3, §7)
        "only_key": F.coalesce("onlyHandleKey", F.lit(False)) & (op != "DELETE"),
        "rows": F.array(row_images(before, after)),
    }


def _with_lost_bytes(rows: str) -> Column:
    """The rows of a field, with `LOST_BYTE` for each byte of text that is not UTF-8 (capture world-ticdc-lost-utf8).

    Go's JSON encoders write such a byte as the escape U+FFFD, and never escape the character itself. Both are the same
    character after the parse, so a message with the escape is parsed again. A cheap search comes first: almost none has it.
    """
    marked = F.regexp_replace(F.col(MESSAGE).cast("string"), F.lit(_LOST_BYTE), F.lit(f"$1{LOST_BYTE}"))
    parsed = F.from_json(marked, f"{rows} ARRAY<MAP<STRING, STRING>>", OPTIONS)[rows]
    return F.when(F.contains(MESSAGE, F.lit(rb"\ufffd")), parsed).otherwise(F.col(rows))


def _with_latin1_bytes(row: Column) -> Column:
    """The row, with BINARY and VARBINARY values re-encoded from UTF-8 to ISO-8859-1 if the message is older than v5.4.

    Encoders before v5.4 read the bytes as UTF-8; later ones write one ISO-8859-1 character per byte (ticdc-canal-json
    "Binary and Blob types"). Bytes that are not UTF-8 became U+FFFD and are lost: the value keeps U+FFFD, does not parse as
    bytes, and its row becomes a dead letter (`value_has_type`).
    """
    types = F.from_json(
        F.col("value").cast("string"), "mysqlType MAP<STRING, STRING>, sqlType MAP<STRING, INT>", OPTIONS
    )
    # an array of one element: Spark parses the types once per message, not once per column
    rows = F.transform(F.array(types), lambda parsed: F.transform_values(row, _to_latin1(parsed)))
    return F.when(F.col("ts") == 0, F.get(rows, F.lit(0))).otherwise(row)


def _to_latin1(types: Column) -> Callable[[Column, Column], Column]:
    def value(name: Column, text: Column) -> Column:
        word = F.lower(F.trim(types["mysqlType"][name]))
        is_bytes = F.coalesce(word.isin(*_BYTES_TYPES) & types["sqlType"][name].isin(*_TEXT_CODES), F.lit(False))
        is_complete = is_bytes & ~text.contains(_REPLACEMENT_CHARACTER)
        return F.when(is_complete, F.decode(F.encode(text, "UTF-8"), "ISO-8859-1")).otherwise(text)

    return value


def _types(message: Row) -> MessageTypes:
    """The types of `mysqlType`, widened where the message omits the width of a BIT (default mode) or the sign of an integer.

    The sign is missing before v5.4: such a message has `ts` 0, or `sqlType` codes that later versions never use for a signed
    integer.
    """
    types = {name: text or "" for name, text in (message["mysqlType"] or {}).items()}
    sql_types = message["sqlType"] or {}
    integers = {
        name: _SIGN_UNKNOWN[word] for name, text in types.items() if (word := text.strip().lower()) in _SIGN_UNKNOWN
    }
    has_no_signs = message["ts"] == 0 or any(
        code is not None and sql_types.get(name) == code for name, (_, code) in integers.items()
    )
    if has_no_signs:
        types |= {name: wide for name, (wide, _) in integers.items()}
    # in a label, TiDB prints a line break and the characters `\n` alike; the characters are more likely
    return MessageTypes(
        {name: "bit(64)" if text.strip().lower() == "bit" else mysql_type(text) for name, text in types.items()}
    )


def _quotings(event: Row) -> tuple[Quoting, ...]:
    """TiDB prints the statements of TiCDC since v5.3.1. Older versions send the user's text.

    `ts` is sent since v5.4, and the storage sink is younger. A message without `ts` is of any earlier version.
    """
    is_printed = event["exact_ts"] or event["ts"] is not None
    return (Quoting.TIDB,) if is_printed else (Quoting.TIDB, Quoting.MYSQL)


TICDC = Dialect(
    "ticdc",
    _matches,
    _surely_matches,
    _form,
    (
        Form(_ROW, ROW, TicdcRow, TicdcRowSent),
        Form(_DDL, DDL, TicdcDdl, TicdcDdlSent),
        Form(_WATERMARK, WATERMARK, TicdcWatermark, TicdcWatermarkSent),
        *ticdc_storage.STORAGE_FORMS,
    ),
    _columns,
    _types,
    frozenset({Trait.FROM_TIDB, Trait.RESTARTS_FROM_CHECKPOINT, Trait.MARKS_LOST_BYTES}),
    ticdc_storage.event_statement,
    _quotings,
)
