"""The rows of `ddl_history` as decoding writes them: the message, and what its statement says in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, StringType, StructField, StructType

from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.registry import BY_NAME
from cdc_pipeline.mysql.ddl.statements import changes_of
from cdc_pipeline.spark.small_frames import small_frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

_BEFORE = 1000
"""How many records before an XA ROLLBACK are searched for the rows of its transaction."""


def ddl_rows(frame: DataFrame, change_log: DataFrame) -> DataFrame:
    """`ddl_history` rows of a decoded frame: the message, and in `changes` what its statement says, in words. A table's
    definition that came without a statement (TiCDC's storage sink) has the statement that makes such a table.

    DDL statements are few; they are the one thing that is collected to be parsed (DESIGN §4). `change_log` must have
    the frame's row changes: an XA ROLLBACK names no table, the rows before it do.
    """
    events = unified.ddl_events(frame)
    names = events.columns
    ends = _ends(frame)
    rows = []
    for row in events.collect():
        places = [(row["database"], row["table"])]
        if row["kind"] == unified.XA:
            places = _rolled_back(row, ends, change_log)
        for database, table in places:
            sql = BY_NAME[row["dialect"]].statement(row)
            values = {**row.asDict(), "database": database, "table": table, "sql": sql}
            changes = changes_of(row["kind"], database or "", table or "", sql or "")
            rows.append((*(values[name] for name in names), [change.description() for change in changes]))
    schema = StructType([*events.schema.fields, StructField("changes", ArrayType(StringType()))])
    return small_frame(frame.sparkSession, rows, schema)


def _ends(frame: DataFrame) -> list[Row]:
    """The positions of the batch's XA and DDL messages."""
    ends = F.col("kind").isin(unified.XA, *unified.DDL_STATEMENTS)
    return frame.where(ends).select("topic", "partition", "offset").collect()


def _rolled_back(event: Row, ends: list[Row], change_log: DataFrame) -> list[tuple[str, str]]:
    """The tables whose rows were sent last before an XA ROLLBACK, which names none (canal-facts 36).

    That they are its own is likely, not certain: nothing in the stream ties the two together.
    """
    earlier = [
        end["offset"]
        for end in ends
        if (end["topic"], end["partition"]) == (event["topic"], event["partition"]) and end["offset"] < event["offset"]
    ]
    first = max([event["offset"] - _BEFORE, *(offset + 1 for offset in earlier)])
    before = change_log.where(
        (F.col("topic") == event["topic"])
        & (F.col("partition") == event["partition"])
        & F.col("offset").between(first, event["offset"] - 1)
    )
    last = before.agg(F.max("offset").alias("offset")).select("offset")
    times = before.join(last, "offset").select("es").distinct()
    tables = before.join(times, "es").select("database", "table").distinct().orderBy("database", "table")
    return [(row["database"], row["table"]) for row in tables.collect()] or [("", "")]
