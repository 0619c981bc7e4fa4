"""The contracts, looked at by Pandera after the tables were written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
from pyspark.sql import functions as F

from cdc_pipeline.contracts.tables import TABLES
from cdc_pipeline.contracts.validation import breaches
from cdc_pipeline.dialects.shapes import shapes_of
from cdc_pipeline.spark.few_rows import for_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from cdc_pipeline.contracts.validation import Breach
    from cdc_pipeline.dialects.shapes import Shape
    from cdc_pipeline.lake.paths import LakePaths

CONTRACT = "contract"
MOST_ROWS = 100_000
"""Of more rows than these it looks at a part, chosen by position."""
_PARTS = 1_000_000


@dataclass(frozen=True)
class TableLook:
    """What one look at the rows that some batches gave a table has found. `rows` is how many there are, or more, `looked_at`
    how many of them it was; `faults` are rules that decoding should have seen, `warnings` those that good rows may break;
    `shapes` are those of the rows' messages."""

    table: str
    rows: int = 0
    looked_at: int = 0
    faults: tuple[Breach, ...] = ()
    warnings: tuple[Breach, ...] = ()
    shapes: tuple[Shape, ...] = ()


def look_at(spark: SparkSession, paths: LakePaths, table: str, batches: Sequence[int], count: int) -> TableLook:
    """`count` is how many rows the batches gave the table, or more; the check `balance` holds that against the table
    itself."""
    if not count:
        return TableLook(table)
    rows = spark.read.format("delta").load(paths.table(table))
    written = rows.where(F.col("batch_id").between(min(batches), max(batches)))
    part = _part(written, count).select(*_columns(table, rows.columns)).coalesce(2).persist()
    # the rules are cheap for a row and dear to prepare: interpreted, those over 44,000 rows took two thirds of the time
    with for_rows(spark, count // 5):
        try:
            checked = part.count()
            found = breaches(part, TABLES[table]) if checked else ()
            shapes = shapes_of(table, part) if checked else []
        finally:
            part.unpersist()
    faults, warnings = (tuple(breach for breach in found if breach.warn == warn) for warn in (False, True))
    return TableLook(table, checked if count <= MOST_ROWS else count, checked, faults, warnings, tuple(shapes))


def contract_result(look: TableLook, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails, and stops what comes after, where rows break a rule that decoding should have seen."""
    return dg.AssetCheckResult(
        check_name=CONTRACT,
        asset_key=key,
        passed=not look.faults,
        description=None
        if not look.faults
        else "; ".join(
            f"{look.table} has {breach.count} rows that break {breach.rule}{_where(breach)}" for breach in look.faults
        )
        + ". Decoding should have set these records aside: it is a fault of this code, to be reported with the records' "
        "bytes (raw_topic_snapshot). Nothing that follows was done",
        metadata={
            "rows": look.rows,
            "looked_at": look.looked_at,
            **{
                breach.rule: f"{breach.count} rows, expected: {breach.expected}; such as {', '.join(breach.examples)}"
                for breach in look.faults
            },
        },
    )


def _where(breach: Breach) -> str:
    return f", such as {breach.examples[0]}" if breach.examples else ""


def _columns(table: str, there: Sequence[str]) -> list[str]:
    """The columns of the contract, and `type`, by which the shapes of DDL are told."""
    return [*TABLES[table].to_schema().columns, *(["type"] if "type" in there else [])]


def _part(rows: DataFrame, count: int) -> DataFrame:
    if count <= MOST_ROWS:
        return rows
    place = F.xxhash64("topic", "partition", "offset")
    return rows.where(F.pmod(place, F.lit(_PARTS)) < int(_PARTS * MOST_ROWS / count))
