"""Alibaba Canal's flat messages (canal-facts).

A row change has one or more rows in binlog order (canal-facts 8). `old[i]` has the before values of the changed columns of
`data[i]`. It may also have columns that changed in an earlier row only, so a column in `old` need not have changed
(canal-facts 10). `old` may be null, empty or shorter than `data`: up to Canal 1.1.6, a row has no entry if none
of the columns that are sent changed. Then no row gets before values, because nothing pairs them, and the rows are applied
by key.

Some encoders leave out columns that are NULL (Canal up to 1.1.3). `mysqlType`, else `sqlType`, names all columns of the
rows: a column that it names and a row lacks is NULL. A column that it does not name is not in the image (MINIMAL). Flink
sends no types and whole rows: a column of `old[i]` that `data[i]` lacks is NULL.

A message without rows that is no DDL event is one of:

- QUERY: the SQL text of a statement whose rows follow (canal-facts 18). Canal 1.1.2 to 1.1.4 also send DDL like this: DROP
  DATABASE, and what they cannot parse (`LogEventConvert.parseQueryEvent`). The text tells them apart: rows follow DML and
  CREATE TABLE … SELECT
- XACOMMIT, XAROLLBACK: the end of an XA transaction (canal-facts 36)
- INSERT, UPDATE or DELETE with `data` null: a change in statement format (canal-facts 17). It is never executed; its table
  gets a gap.

Other services write Canal's format with types of their own: `contracts.canal.INSERT_TYPES`, `STATEMENT_TYPES`. Their DDL may
have `isDdl` false.
"""

from __future__ import annotations

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal import INSERT_TYPES, STATEMENT_TYPES, CanalDdl, CanalNote, CanalRow, CanalStatement
from cdc_pipeline.contracts.canal_json import NO_KEY, ROW_TYPES, XA_TYPES
from cdc_pipeline.contracts.java_types import contradictions, is_text_as_bytes
from cdc_pipeline.contracts.sent_canal_json import CanalDdlSent, CanalNoteSent, CanalRowSent, CanalStatementSent
from cdc_pipeline.dialects.dialect import Dialect, Form, MessageTypes, Trait, mysql_type, no_row, row_images
from cdc_pipeline.dialects.envelope import BATCH, MESSAGE
from cdc_pipeline.dialects.unified import DDL, QUERY_TEXT, ROW, STATEMENT, TSO_SHIFT, XA
from cdc_pipeline.mysql.types.wire_values import JSON_BYTES, TEXT_BYTES

_ROW, _DDL, _STATEMENT, _QUERY, _XA = "canal_row", "canal_ddl", "canal_statement", "canal_query", "canal_xa"
_NO_WORDS = r"""(?s)/\*(?!M?!).*?\*/|--[^\n]*|#[^\n]*|'[^']*'|"[^"]*"|`[^`]*`"""
"""Comments that are not executed, strings and quoted names."""
_STATEMENT_OF_DDL = r"(?i)^\s*(?:/\*M?!\d*\s*)?(?:ALTER|CREATE|DROP|RENAME|TRUNCATE)\b"
_MAY_HAVE_ROWS = r"(?is)^\s*(?:/\*M?!\d*\s*)?CREATE\b.*\b(?:SELECT\b|VALUES\s*(?:ROW\s*)?\(|TABLE\b.*\bTABLE\b)"
_HIDDEN_KEYS = ("#alibaba_rds_row_id#", "__#alibaba_rds_row_id#__", "_drds_implicit_id_")
"""Columns that Canal adds to rows of tables without a primary key on Alibaba RDS and PolarDB-X, named in `pkNames`
(`LogEventConvert.parseOneRow`, 1.1.3 to 1.1.8)."""
_BYTES_CODES = (2004, -4)
"""`sqlType` of bytes, and up to Canal 1.1.6 of NULL in a column of bytes."""


def _matches() -> Column:
    """True: no field marks a message of Canal in every version, so it matches what the other dialects do not."""
    return F.lit(True)


def _form() -> Column:
    kind = F.col("type")
    no_rows = F.col("data").isNull() & F.col("old").isNull()
    has_sql = F.coalesce("sql", F.lit("")) != ""
    is_statement = kind.isin(*STATEMENT_TYPES) & has_sql
    # in a lambda, which Spark does not compile: compiled, it makes the method of decoding too long for the JVM's compiler
    is_text_of_ddl = (kind == "QUERY") & F.exists(F.array("sql"), _is_text_of_ddl)
    return (
        F.when(F.col("isDdl") | (no_rows & (is_statement | is_text_of_ddl)), F.lit(_DDL))
        .when(kind == "QUERY", F.lit(_QUERY))
        .when(kind.isin(*XA_TYPES), F.lit(_XA))
        .when(no_rows & kind.isin(*ROW_TYPES) & has_sql, F.lit(_STATEMENT))
        .otherwise(F.lit(_ROW))
    )


def _is_text_of_ddl(sql: Column) -> Column:
    words = F.regexp_replace(sql, F.lit(_NO_WORDS), F.lit(" "))
    return words.rlike(_STATEMENT_OF_DDL) & ~words.rlike(_MAY_HAVE_ROWS)


def _columns() -> dict[str, Column]:
    kind, data, old = F.col("type"), F.col("data"), F.col("old")
    op = F.when(kind.isin(*INSERT_TYPES), F.lit("INSERT")).otherwise(kind)
    hidden = F.coalesce(F.arrays_overlap("pkNames", F.array(*map(F.lit, _HIDDEN_KEYS))), F.lit(False))
    rows_as_sent = _with_nulls(F.when(F.coalesce(F.size(data), F.lit(0)) > 0, data).otherwise(old))
    sent = F.when(hidden, F.transform(rows_as_sent, _without_hidden_keys)).otherwise(rows_as_sent)
    rows = (
        F.when(op == "INSERT", F.transform(sent, lambda row: row_images(no_row(), row)))
        .when(op == "DELETE", F.transform(sent, lambda row: row_images(row, no_row())))
        .when(op == "UPDATE", F.transform(sent, lambda row, index: row_images(_before_values(index), row)))
    )
    return {
        "database": _without_back_ticks("database"),
        "table": F.col("table"),
        "type": kind,
        "op": op,
        "commit_ts": F.shiftleft("es", TSO_SHIFT),
        "at": F.coalesce(
            F.shiftleft(F.nullif("ts", F.lit(0)), TSO_SHIFT) + _low_bits(BATCH), F.shiftleft("es", TSO_SHIFT)
        ),
        "exact_ts": F.lit(False),
        "watermark_ts": F.lit(None).cast("bigint"),
        "es": F.col("es"),
        "ts": F.nullif("ts", F.lit(0)),
        # services that write Canal's format without batches write 0
        "message_id": F.nullif(F.col(BATCH), F.lit(0)),
        "sql": F.col("sql"),
        # empty: the encoder left `pkNames` out, and may have left out NULL columns too
        "key_names": F.when(~hidden, F.coalesce("pkNames", F.when(~F.col(NO_KEY), F.array().cast("array<string>")))),
        "only_key": F.lit(False),
        "rows": rows,
    }


def _low_bits(number: str) -> Column:
    return F.coalesce(number, F.lit(0)).bitwiseAND(F.lit((1 << TSO_SHIFT) - 1))


def _before_values(index: Column) -> Column:
    """The entry of `old` for a row of `data`; null if it has no columns, or if `old` has not one entry per row."""
    values = F.get("old", index)
    return F.when((F.size("old") == F.size("data")) & (F.size(values) > 0), values)


def _without_hidden_keys(row: Column) -> Column:
    return F.map_filter(row, lambda name, _: ~name.isin(*_HIDDEN_KEYS))


def _with_nulls(rows: Column) -> Column:
    """The rows with each column that the message names; null in a row that lacks it."""
    names = _named_columns()
    nulls = F.map_from_arrays(names, F.array_repeat(F.lit(None).cast("string"), F.size(names)))
    # a let: Spark would evaluate `nulls` for each row
    filled = F.transform(F.array(nulls), lambda own: F.transform(rows, lambda row: F.map_concat(own, row)))
    lacks = F.array_min(F.transform(rows, F.size)) < F.size(names)
    is_update_of_flink = F.col(BATCH).isNull() & (F.col("type") == "UPDATE") & ~F.contains(MESSAGE, F.lit(b'"isDdl"'))
    with_old = F.transform(rows, _with_nulls_of_old)
    return F.when(is_update_of_flink, with_old).when(lacks, F.get(filled, F.lit(0))).otherwise(rows)


def _with_nulls_of_old(row: Column, index: Column) -> Column:
    nulls = F.transform_values(F.get("old", index), lambda _name, _text: F.lit(None).cast("string"))
    return F.coalesce(F.map_concat(nulls, row), row)


def _named_columns() -> Column:
    """The columns that `mysqlType` names, else those that `sqlType` names; null if neither is an object.

    Almost every message writes the field without white space and once. Reading the keys at its text is much cheaper than
    to parse the message again.
    """
    text = F.col(MESSAGE).cast("string")
    found = []
    for field in ("mysqlType", "sqlType"):
        name, start = F.lit(f'"{field}"'), F.lit(f'"{field}":')
        keys = F.json_object_keys(F.substring_index(text, f'"{field}":', -1))
        parsed = F.json_object_keys(F.get_json_object(text, f"$.{field}"))
        found += [F.when(F.contains(text, start), keys), F.when(F.contains(text, name), parsed)]
    return F.coalesce(*found)


def _without_back_ticks(column: str) -> Column:
    """The name without the back-ticks that CREATE and DROP DATABASE keep around it (canal-facts 37)."""
    name = F.col(column)
    inner = F.replace(F.substring(name, F.lit(2), F.length(name) - 2), F.lit("``"), F.lit("`"))
    return F.when(name.startswith("`") & name.endswith("`") & (F.length(name) > 2), inner).otherwise(name)


def _types(message: Row) -> MessageTypes:
    """The types of `mysqlType`, and the encodings of columns with the `sqlType` of bytes: a JSON column is MariaDB's
    (canal-facts 29), and `TEXT(n)` is no text for Canal."""
    types = {
        name: mysql_type(text or "") for name, text in (message["mysqlType"] or {}).items() if name not in _HIDDEN_KEYS
    }
    sql_types = message["sqlType"] or {}
    encodings = {}
    for name, text in types.items():
        if sql_types.get(name) in _BYTES_CODES:
            if text.strip().lower() == "json":
                encodings[name] = JSON_BYTES
            elif is_text_as_bytes(text):
                encodings[name] = TEXT_BYTES
    return MessageTypes(types, encodings, contradictions(types, sql_types))


CANAL = Dialect(
    "canal",
    _matches,
    lambda: F.lit(False),
    _form,
    (
        Form(_ROW, ROW, CanalRow, CanalRowSent),
        Form(_DDL, DDL, CanalDdl, CanalDdlSent),
        Form(_STATEMENT, STATEMENT, CanalStatement, CanalStatementSent),
        Form(_QUERY, QUERY_TEXT, CanalNote, CanalNoteSent),
        Form(_XA, XA, CanalNote, CanalNoteSent),
    ),
    _columns,
    _types,
    frozenset(
        {
            Trait.IN_LOG_ORDER,
            Trait.ABSENT_IS_DEFAULT,
            Trait.NAMES_TYPES_TWICE,
            Trait.DOUBLES_BACK_TICKS,
            Trait.READS_TEXT_AS_UTF8,
            Trait.OMITS_NULLS,
        }
    ),
    has_one_row=False,
)
