"""The check `contract`: validates new rows of the decoded tables with Pandera."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.checks.markdown import check_result
from cdc_pipeline.contracts.tables import TABLES
from cdc_pipeline.contracts.validation import breaches_of_counts, rule_counts, wrong_types
from cdc_pipeline.dialects.shapes import Shape, first_place, shape_number
from cdc_pipeline.lake.control_tables import read_frame
from cdc_pipeline.lake.paths import CONTROL_TABLES
from cdc_pipeline.spark.small_frames import is_small, small_query

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dagster as dg
    from pyspark.sql import DataFrame

    from cdc_pipeline.contracts.validation import Breach
    from cdc_pipeline.lake.lake import Lake

CONTRACT = "contract"
MOST_ROWS = 100_000
"""Up to this number all new rows are validated, of more a sample by position."""
_SAMPLE_BUCKETS = 1_000_000


@dataclass(frozen=True)
class TableValidation:
    """The result of validating the rows of some batches in a table."""

    table: str
    rows: int = 0
    """Number of rows, an upper bound if only a sample was validated."""
    validated: int = 0
    """Number of validated rows."""
    errors: tuple[Breach, ...] = ()
    """Rules that the decoder should have enforced."""
    warnings: tuple[Breach, ...] = ()
    """Rules that accepted rows may break."""
    shapes: tuple[Shape, ...] = ()

    def joined(self, other: TableValidation) -> TableValidation:
        """The result for the batches of both."""
        return TableValidation(
            self.table,
            self.rows + other.rows,
            self.validated + other.validated,
            (*self.errors, *other.errors),
            (*self.warnings, *other.warnings),
            (*self.shapes, *other.shapes),
        )


def validate_table(lake: Lake, table: str, batches: Sequence[int], count: int) -> TableValidation:
    """Validates the rows of the batches. `count` is an upper bound of their number."""
    if not count:
        return TableValidation(table)
    if is_small(count) and table in CONTROL_TABLES:
        rows = read_frame(lake, table, ("batch_id", ">=", min(batches)), ("batch_id", "<=", max(batches)))
    else:
        rows = lake.read_batches(table, min(batches), max(batches))
    # a single task needs no shuffle
    sample = _sample(rows, count).select(*_columns(table, rows.columns)).coalesce(1 if is_small(count) else 2)
    # Rules are cheap per row and expensive to compile: interpreted, 44,000 rows took two thirds of the time.
    with small_query(lake.spark, count // 5):
        validated, found, shapes = _validate(table, sample)
    errors, warnings = (tuple(breach for breach in found if breach.warn == warn) for warn in (False, True))
    total = validated if count <= MOST_ROWS else count
    return TableValidation(table, total, validated, errors, warnings, shapes)


def _validate(table: str, rows: DataFrame) -> tuple[int, tuple[Breach, ...], tuple[Shape, ...]]:
    """The number of rows, the broken rules, and the shapes of the messages: one query, unless a rule is broken."""
    model = TABLES[table]
    if wrong := wrong_types(rows, model):
        return wrong[0].count, wrong, ()
    counts = F.count("*").alias("rows"), first_place().alias("place"), *rule_counts(model)
    groups = rows.groupBy(shape_number(table).alias("shape")).agg(*counts).collect()
    shapes = (Shape(group["shape"], tuple(group["place"])) for group in groups if group["shape"] is not None)
    found = breaches_of_counts(rows, model, groups) if groups else ()
    return sum(group["rows"] for group in groups), found, tuple(shapes)


def contract_result(validation: TableValidation, key: dg.AssetKey) -> dg.AssetCheckResult:
    """Fails if rows break a rule that the decoder should have enforced. Blocks downstream assets."""
    return check_result(
        CONTRACT,
        key,
        [
            f"{validation.table} has {breach.count} rows that break {breach.rule}"
            + "".join(f", for example {example}" for example in breach.examples[:1])
            for breach in validation.errors
        ],
        "The decoder should have rejected these records: this is a bug in cdc_pipeline, report it with the records' "
        "bytes from raw_topic_snapshot. Downstream assets were not updated",
        {
            "rows": validation.rows,
            "validated": validation.validated,
            **{
                breach.rule: f"{breach.count} rows, expected: {breach.expected}; for example {', '.join(breach.examples)}"
                for breach in validation.errors
            },
        },
        is_error=True,
    )


def _columns(table: str, existing: Sequence[str]) -> list[str]:
    """The columns of the contract, and `type`, which is part of the shape of a DDL message."""
    return [*TABLES[table].to_schema().columns, *(["type"] if "type" in existing else [])]


def _sample(rows: DataFrame, count: int) -> DataFrame:
    if count <= MOST_ROWS:
        return rows
    position_hash = F.xxhash64("topic", "partition", "offset")
    return rows.where(F.pmod(position_hash, F.lit(_SAMPLE_BUCKETS)) < int(_SAMPLE_BUCKETS * MOST_ROWS / count))
