"""`ddl_history`: the values of `status`, and the columns that decoding leaves NULL and a cut fills in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.paths import is_for_delta_rs
from cdc_pipeline.spark.small_frames import struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from cdc_pipeline.lake.control_tables import Condition
    from cdc_pipeline.lake.lake import Lake

# Decoding writes PENDING, a cut writes the others.
PENDING = "pending"
APPLIED, NO_EFFECT, DUPLICATE, NOT_APPLIED, HELD = "applied", "no effect", "duplicate", "not applied yet", "held"
NOT_INCLUDED = "not included"
RESULT_COLUMNS = (
    "status STRING, effect STRING, cut_id BIGINT, tables ARRAY<STRUCT<`database`: STRING, `table`: STRING, "
    "columns: ARRAY<STRUCT<name: STRING, mysql_type: STRING, nullable: BOOLEAN, `default`: STRING, generated: STRING>>, "
    "primary_key: ARRAY<STRING>, unique_keys: ARRAY<ARRAY<STRING>>>>"
)


def with_empty_results(ddl: DataFrame) -> DataFrame:
    """DDL rows with `RESULT_COLUMNS` added: `status` is PENDING, the others are NULL."""
    nulls = {field.name: F.lit(None).cast(field.dataType) for field in struct_of(RESULT_COLUMNS)}
    return ddl.withColumns({**nulls, "status": F.lit(PENDING)})


def may_have_statements(lake: Lake, after_batch: int, cut_id: int) -> bool:
    """Whether a statement may concern the cut: one of the batches after `after_batch`, or one that no earlier cut has
    decided. False only if a look that takes milliseconds shows that there is none, which it can do in local folders."""
    if not is_for_delta_rs(lake.paths.table("ddl_history")):
        return True
    # a cut that was begun and planned again may have stored outcomes already
    conditions: tuple[Condition, ...] = (
        ("batch_id", ">", after_batch),
        ("status", "=", PENDING),
        ("cut_id", ">=", cut_id),
    )
    return any(read_rows(lake, "ddl_history", condition, columns=["batch_id"]) for condition in conditions)
