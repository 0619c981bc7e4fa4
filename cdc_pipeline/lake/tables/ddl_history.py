"""`ddl_history`: the values of `status`, and the columns that decoding leaves NULL and a cut fills in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.spark.small_frames import struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
