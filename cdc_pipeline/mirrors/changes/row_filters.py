"""Filters on row changes and statements: by table, and by time in a stream without TSOs."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects.traits import Trait, has_trait
from cdc_pipeline.dialects.unified import TSO_SHIFT
from cdc_pipeline.mirrors.model.source_tables import SOURCE_OF_CHANGE, SourceTableName
from cdc_pipeline.spark.folded import balanced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column

    from cdc_pipeline.mysql.model.table import TableName


def is_in_table(name: TableName | SourceTableName) -> Column:
    """Whether a row change is of the table."""
    if isinstance(name, SourceTableName):
        database, table = SOURCE_OF_CHANGE
        return (
            is_in_table(name.mirror) & (F.col(database) == name.source.database) & (F.col(table) == name.source.table)
        )
    return (F.col("database") == name.database) & (F.col("table") == name.table)


def is_in_tables(names: Iterable[TableName | SourceTableName]) -> Column:
    """Whether a row change is of one of the tables."""
    return balanced(operator.or_, [is_in_table(name) for name in names], F.lit(False))


def clock_ts() -> Column:
    """When the message was built (ms). NULL for dialects whose `ts` orders nothing."""
    return F.when(has_trait(Trait.IN_LOG_ORDER), F.col("ts"))


def stream_clock() -> Column:
    """The time of a row change or statement on the clock of its stream, comparable inside a pipeline.

    It is `commit_ts`, and for Canal `ts << 18` and the low bits of the batch number: one thread builds the messages of a
    topic, so that these order all its partitions (canal-facts 3, 4, 47).
    """
    number = F.coalesce("message_id", F.lit(0)).bitwiseAND(F.lit((1 << TSO_SHIFT) - 1))
    return F.coalesce(F.shiftleft(clock_ts(), TSO_SHIFT) + number, F.col("commit_ts"))


def is_at_or_after(commit_ts: int | None, ts: int | None) -> Column:
    """Whether a row change or statement is at or after one of the times: `commit_ts`, or the clock `ts` (ms).

    Between partitions Canal's clock orders, and `es` may contradict it. None ignores a time.
    """
    later = F.lit(False) if commit_ts is None else F.col("commit_ts") >= commit_ts
    return later if ts is None else later | F.coalesce(clock_ts() >= ts, F.lit(False))
