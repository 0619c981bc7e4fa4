"""What a dialect is: how its messages are told apart, which contract each form has, and what it becomes,
and what is to be known of it further on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandera.pyspark as pa
    from pyspark.sql import Column, Row


@dataclass(frozen=True)
class Form:
    """A kind of message as one dialect writes it, with its contract, and that of all its fields as they are sent, which is
    looked at once per shape of messages."""

    name: str
    kind: str
    contract: type[pa.DataFrameModel[Any]]
    sent: type[pa.DataFrameModel[Any]] | None = None


class Trait(Enum):
    """What mirrors have to know of a dialect: they ask for these (`dialects.traits`), and for no dialect by its name. Each
    has the words that docs/dialects.md has for it."""

    IN_LOG_ORDER = (
        "In a partition messages are in the order of upstream's log, whatever `es` says. "
        "Between partitions the clock `ts` orders them, then the number of the batch."
    )
    NUMBERS_BATCHES = "`message_id` counts batches. It begins again with a new delivery, and a batch may come twice."
    NUMBERS_CHANGES = "`commit_ts` is the number of the change. It orders all partitions, and is no time: `es` is."
    SPLITS_UPDATES = "An UPDATE may come as two records of one `commit_ts`, one for each image."
    RESTARTS_FROM_CHECKPOINT = "After a restart all above a checkpoint comes again, also the first half of a commit."
    LOADS_FIRST = "The rows that are there come before the changes, as INSERTs like any others."
    ABSENT_IS_DEFAULT = "A column that an INSERT lacks has its default."
    NEEDS_TYPES = "A value is read by the type that its message names, whatever DDL has told."
    JSON_NEEDS_TYPES = "A JSON value is read by the type that its message names."
    READS_TEXT_AS_UTF8 = "Text of another character set may come damaged."
    FROM_TIDB = "Upstream is TiDB, which places some rows in other partitions of a table than MySQL."


@dataclass(frozen=True)
class MessageTypes:
    """Of one message: column → MySQL type in words, and column → `Wire`, for those that have one."""

    mysql_types: dict[str, str] = field(default_factory=dict)
    wires: dict[str, str] = field(default_factory=dict)


def as_sent(event: Row) -> str | None:
    """The text of an event, where that is a statement."""
    sql: str | None = event["sql"]
    return sql


@dataclass(frozen=True)
class Dialect:
    """One message dialect. The columns are over `envelope.parsed`.

    `recognised` is true for a message of the dialect that no dialect before it has claimed, `certain` where no other
    dialect could have written it, whatever the pipeline declares; `form` names one of `forms`; `columns` gives the
    unified columns (`COLUMNS`), each for the forms that have it.

    `types` gives the column types that a message names (of `dialects.message_types`), `statement` the statement that an
    event of
    `unified.ddl_events` says; `traits` is what mirrors have to know.
    """

    name: str
    recognised: Callable[[], Column]
    certain: Callable[[], Column]
    form: Callable[[], Column]
    forms: tuple[Form, ...]
    columns: Callable[[], dict[str, Column]]
    types: Callable[[Row], MessageTypes]
    traits: frozenset[Trait]
    statement: Callable[[Row], str | None] = as_sent


COLUMNS = {
    "database": "STRING",
    "table": "STRING",
    "type": "STRING",
    "op": "STRING",
    "commit_ts": "BIGINT",
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


def image(before: Column, after: Column) -> Column:
    """One row change: the row before and after, either of them null."""
    return F.struct(before.alias("before"), after.alias("after"))


def no_row() -> Column:
    return F.lit(None).cast("map<string, string>")
