"""What a dialect is: how its messages are told apart, which contract each form has, and what it becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Callable

    import pandera.pyspark as pa
    from pyspark.sql import Column


@dataclass(frozen=True)
class Form:
    """A kind of message as one dialect writes it, with its contract, and that of all its fields as they are sent, which is
    looked at once per shape of messages."""

    name: str
    kind: str
    contract: type[pa.DataFrameModel[Any]]
    sent: type[pa.DataFrameModel[Any]] | None = None


@dataclass(frozen=True)
class Dialect:
    """One message dialect. The columns are over `envelope.parsed`.

    `recognised` is true for a message of the dialect that no dialect before it has claimed, `certain` where no other
    dialect could have written it, whatever the pipeline declares; `form` names one of `forms`; `columns` gives the
    unified columns (`COLUMNS`), each for the forms that have it.
    """

    name: str
    recognised: Callable[[], Column]
    certain: Callable[[], Column]
    form: Callable[[], Column]
    forms: tuple[Form, ...]
    columns: Callable[[], dict[str, Column]]


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
