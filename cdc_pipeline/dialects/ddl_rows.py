"""Rows of `ddl_history` as decoding writes them: the event, and the parsed changes of its statement as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.registry import BY_NAME
from cdc_pipeline.dialects.traits import statement_quotings
from cdc_pipeline.mysql.ddl.statements import event_changes
from cdc_pipeline.positions import POSITION
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_SEARCHED_OFFSETS = 1000
"""Offsets before an XA ROLLBACK in which the rows of its transaction are searched."""


def ddl_rows(frame: DataFrame, change_log: DataFrame) -> DataFrame:
    """Rows of `ddl_history`: `unified.ddl_events` of a decoded frame, and `changes`, the parsed statement as text.

    The `sql` of a schema file without a statement (TiCDC's storage sink) is the equivalent CREATE TABLE. An XA ROLLBACK
    names no table: it gets one row per table whose rows precede it in `change_log`, which must have the frame's row changes.

    Collects the statements to parse them; they are few.
    """
    events = unified.ddl_events(frame)
    names = events.columns
    bounds = _transaction_bounds(frame)
    rows = []
    for row in events.collect():
        tables = [(row["database"], row["table"])]
        if row["kind"] == unified.XA:
            tables = _rolled_back_tables(row, bounds, change_log)
        for database, table in tables:
            sql = BY_NAME[row["dialect"]].statement(row)
            values = {**row.asDict(), "database": database, "table": table, "sql": sql}
            changes = event_changes(row["kind"], database or "", table or "", sql or "", statement_quotings(row))
            rows.append((*(values[name] for name in names), [change.description() for change in changes]))
    schema = StructType([*events.schema.fields, StructField("changes", ArrayType(StringType()))])
    return small_frame(frame.sparkSession, rows, schema)


def _transaction_bounds(frame: DataFrame) -> list[Row]:
    """The positions of the batch's XA and DDL events."""
    is_bound = F.col("kind").isin(unified.XA, *unified.DDL_STATEMENTS)
    return frame.where(is_bound).select(*POSITION).collect()


def _rolled_back_tables(event: Row, bounds: list[Row], change_log: DataFrame) -> list[tuple[str, str]]:
    """The tables of the last rows before an XA ROLLBACK, which names no table (canal-facts 36); an unnamed one if none.

    They are probably the tables of its transaction. The stream has nothing that links the two.
    """
    earlier = [
        bound["offset"]
        for bound in bounds
        if (bound["topic"], bound["partition"]) == (event["topic"], event["partition"])
        and bound["offset"] < event["offset"]
    ]
    first = max([event["offset"] - _SEARCHED_OFFSETS, *(offset + 1 for offset in earlier)])
    before = change_log.where(
        (F.col("topic") == event["topic"])
        & (F.col("partition") == event["partition"])
        & F.col("offset").between(first, event["offset"] - 1)
    )
    last = before.agg(F.max("offset").alias("offset")).select("offset")
    times = before.join(last, "offset").select("es").distinct()
    tables = before.join(times, "es").select("database", "table").distinct().orderBy("database", "table")
    return [(row["database"], row["table"]) for row in tables.collect()] or [("", "")]
