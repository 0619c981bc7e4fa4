"""`ddl_history`: the values of `status`, and the columns that decoding leaves NULL and a cut fills in."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.lake.file_statistics import list_files
from cdc_pipeline.lake.handles import open_table
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import is_for_delta_rs
from cdc_pipeline.spark.small_frames import struct_of

# Decoding writes PENDING, a cut writes the others. PENDING is the last in alphabetical order, see `may_have_statements`.
PENDING = "pending"
APPLIED, NO_EFFECT, DUPLICATE, NOT_APPLIED, HELD = "applied", "no effect", "duplicate", "not applied yet", "held"
NOT_INCLUDED = "not included"
APPROVED_BY = "approved by run "
"""How `effect` of a held statement begins once a run has begun to apply it."""
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
    decided. False only if a look that takes milliseconds shows that there is none, by the statistics of the table's files.
    """
    path = lake.paths.table("ddl_history")
    if not is_for_delta_rs(path):
        return True
    opened = open_table(path)
    for file in () if opened is None else list_files(opened).to_pylist():
        newest, status, decided_by = (file.get(f"max.{column}") for column in ("batch_id", "status", "cut_id"))
        # a cut that was begun and is planned again may have stored outcomes already
        if None in (newest, status, decided_by) or newest > after_batch or status >= PENDING or decided_by >= cut_id:
            return True
    return False
