"""`ddl_history`: the columns that decoding leaves open, and a cut fills in, of what became of each statement, and the words
for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from cdc_pipeline.spark.small_frames import struct_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# what `status` says of a statement; PENDING is what decoding writes, the others come from cuts
PENDING = "pending"
APPLIED, NO_EFFECT, DUPLICATE, NOT_APPLIED, HELD = "applied", "no effect", "duplicate", "not applied yet", "held"
NOT_INCLUDED = "not included"
RESULT_COLUMNS = (
    "status STRING, effect STRING, cut_id BIGINT, tables ARRAY<STRUCT<`database`: STRING, `table`: STRING, "
    "columns: ARRAY<STRUCT<name: STRING, mysql_type: STRING, nullable: BOOLEAN, `default`: STRING, generated: STRING>>, "
    "primary_key: ARRAY<STRING>, unique_keys: ARRAY<ARRAY<STRING>>>>"
)


def undecided(ddl: DataFrame) -> DataFrame:
    """DDL rows of which no cut has said yet what it did: with the columns that `close_events` fills in."""
    nothing = {field.name: F.lit(None).cast(field.dataType) for field in struct_of(RESULT_COLUMNS)}
    return ddl.withColumns({**nothing, "status": F.lit(PENDING)})
