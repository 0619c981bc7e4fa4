"""`Dialect`: how the messages of one dialect are recognized, validated and decoded, and the traits that mirrors need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pandera.pyspark as pa
from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from cdc_pipeline.mysql.ddl.tokens import Quoting


@dataclass(frozen=True)
class Form:
    """A kind of message as one dialect writes it."""

    name: str
    kind: str
    """One of `unified.KINDS`."""
    contract: type[pa.DataFrameModel[Any]]
    """The fields that decoding reads."""
    complete_contract: type[pa.DataFrameModel[Any]] | None = None
    """All fields, validated once per shape of messages; None for files of TiCDC's storage sink."""


class Trait(Enum):
    """What mirrors need to know about a dialect. They test traits (`dialects.traits`), never a dialect's name.

    The values are the texts of docs/dialects.md.
    """

    IN_LOG_ORDER = (
        "A partition is in binlog order, even where `es` steps back. "
        "Across partitions `ts` orders the changes, then `message_id`, the number of the encoder's batch. "
        "The numbers restart with the encoder, and a batch may be sent twice."
    )
    NUMBERS_CHANGES = (
        "`commit_ts` is a sequence number that orders all partitions. It is not a time; `es` is. "
        "An UPDATE may arrive as two records with one number, one per image."
    )
    RESTARTS_FROM_CHECKPOINT = (
        "A restart sends everything above the checkpoint again, including changes of a commit that was sent in part."
    )
    LOADS_FIRST = "A full load precedes the changes. Its rows arrive as INSERTs."
    ABSENT_IS_DEFAULT = "A column that is missing in an INSERT has its default."
    NEEDS_TYPES = "Values are parsed by the types that their message names, even where DDL defines the column."
    NAMES_TYPES_TWICE = (
        "`sqlType` is the type in the binlog, `mysqlType` that of the table definition. JSON values are parsed by both. "
        "If they contradict each other, values may be under the wrong column names."
    )
    DOUBLES_BACK_TICKS = "A column name has each of its back-ticks twice, as in its definition."
    READS_TEXT_AS_UTF8 = "Text in other character sets may arrive damaged."
    MARKS_LOST_BYTES = "A byte of text that is not UTF-8 is sent as U+FFFD. It is decoded as U+FFFD U+FFFF."
    OMITS_NULLS = (
        "A message without `pkNames` may omit columns that are NULL, so a column that `old` lacks may have been NULL. "
        "An UPDATE may have no before values."
    )
    FROM_TIDB = (
        "The upstream is TiDB: its messages may spell one table in two ways, some rows are in other table partitions than "
        "in MySQL, and the `es` of a statement is the time of its commit, not of its start."
    )


@dataclass(frozen=True)
class MessageTypes:
    """The column types that one message names."""

    mysql_types: dict[str, str] = field(default_factory=dict)
    """Column → MySQL type as text; empty if the message does not name it."""
    encodings: dict[str, str] = field(default_factory=dict)
    """Column → encoding of its values (`mysql.types.wire_values`), where the MySQL type does not determine it."""
    contradictions: tuple[str, ...] = ()
    """The columns with two types that contradict each other."""


def mysql_type(text: str) -> str:
    """A type of `mysqlType` as MySQL writes it: TiCDC and Canal send labels with their backslashes as they are."""
    return text.replace("\\", "\\\\")


def sent_statement(event: Row) -> str | None:
    """The SQL text of a row of `unified.ddl_events`."""
    sql: str | None = event["sql"]
    return sql


def user_quotings(_event: Row) -> tuple[Quoting, ...]:
    """The quoting of a statement that is sent as the user wrote it."""
    return (Quoting.MYSQL,)


@dataclass(frozen=True)
class Dialect:
    """One message dialect. The functions return columns over `envelope.parse_records`."""

    name: str
    matches: Callable[[], Column]
    """Whether a message has this dialect, if no dialect before it in `registry.DIALECTS` matches."""
    surely_matches: Callable[[], Column]
    """Whether no other dialect can have written the message."""
    form: Callable[[], Column]
    """The name of one of `forms`."""
    forms: tuple[Form, ...]
    columns: Callable[[], dict[str, Column]]
    """The columns of `COLUMNS`. Each is valid only for the forms that have it."""
    types: Callable[[Row], MessageTypes]
    """The column types of a message collected by `read_message_types`."""
    traits: frozenset[Trait]
    statement: Callable[[Row], str | None] = sent_statement
    """The SQL statement of a row of `unified.ddl_events`."""
    quotings: Callable[[Row], tuple[Quoting, ...]] = user_quotings
    """Who may have written the strings of a statement: of a row of `unified.ddl_events` or of `ddl_history`."""
    has_one_row: bool = True
    """Whether a message has at most one row change."""


COLUMNS = {
    "database": "STRING",
    "table": "STRING",
    "type": "STRING",
    "op": "STRING",
    "commit_ts": "BIGINT",
    "at": "BIGINT",
    "exact_ts": "BOOLEAN",
    "watermark_ts": "BIGINT",
    "es": "BIGINT",
    "ts": "BIGINT",
    "message_id": "BIGINT",
    "sql": "STRING",
    "key_names": "ARRAY<STRING>",
    "only_key": "BOOLEAN",
    "rows": "ARRAY<STRUCT<before: MAP<STRING, STRING>, after: MAP<STRING, STRING>>>",
}
"""Decoded column → its type. `dialects.unified` documents the columns."""


def row_images(before: Column, after: Column) -> Column:
    """One row change: a struct of `before` and `after`, either of them null."""
    return F.struct(before.alias("before"), after.alias("after"))


def no_row() -> Column:
    return F.lit(None).cast("map<string, string>")
