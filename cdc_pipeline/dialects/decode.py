"""Raw records to the pipeline's tables: one parse, four outputs, and the count of each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.dialects import ticdc, unified
from cdc_pipeline.schemas.changes import described
from cdc_pipeline.schemas.ddl_parser import parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class BatchCounts:
    """How many records of a batch are of each kind (`unified.KINDS`), and whether any has an exact TSO."""

    records: int
    by_kind: dict[str, int]
    exact_ts: bool

    @property
    def balanced(self) -> bool:
        """Promise 1: every record became exactly one thing."""
        return self.records == sum(self.by_kind.values())


def decoded(raw: DataFrame) -> DataFrame:
    """Every record of `raw` as exactly one kind; see `dialects.unified`."""
    return ticdc.decoded(raw)


def batch_counts(frame: DataFrame, records: int) -> BatchCounts:
    """Counts of a decoded frame. `records` is what the raw snapshot says of the batch, counted apart from this."""
    rows = (
        frame.groupBy("kind")
        .agg(F.count("*").alias("n"), F.max("exact_ts").alias("exact"), F.max("watermark_ts").alias("mark"))
        .collect()
    )
    by_kind = dict.fromkeys(unified.KINDS, 0) | {row["kind"]: row["n"] for row in rows}
    exact = any(row["exact"] or row["mark"] is not None for row in rows if row["kind"] != unified.DEAD)
    return BatchCounts(records, by_kind, exact)


def ddl_rows(frame: DataFrame) -> DataFrame:
    """`ddl_history` rows of a decoded frame: the message, and in `changes` what its statement says, in words.

    DDL statements are few; they are the one thing that is collected to be parsed (DESIGN §4).
    """
    events = unified.ddl_events(frame)
    rows = [
        (*row, [described(change) for change in parse_ddl(row["sql"], row["database"] or "")])
        for row in events.collect()
    ]
    from pyspark.sql.types import ArrayType, StringType, StructField, StructType

    schema = StructType([*events.schema.fields, StructField("changes", ArrayType(StringType()))])
    return frame.sparkSession.createDataFrame(rows, schema)
