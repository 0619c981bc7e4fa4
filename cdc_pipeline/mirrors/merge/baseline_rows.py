"""The rows of a baseline in the form of `net_changes`: they are typed, masked and computed as rows of messages are."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from cdc_pipeline.mirrors.model.ddl_events import BASELINE_TOPIC
from cdc_pipeline.mirrors.model.steps import LoadBaseline
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.types.spark_types import spark_type
from cdc_pipeline.mysql.types.wire_values import HEX
from cdc_pipeline.positions import POSITION

DIALECT = "snapshot"
"""The dialect of these rows. It has no traits."""
FILE, ROW = "_file", "_row"
"""The columns of a baseline beside upstream's: the number of a row's file, and its number in the file, from 1."""


def baseline_changes(rows: DataFrame, step: LoadBaseline) -> DataFrame:
    """The columns of `net_changes` that `typed_rows` reads. `rows`: a text per column, `FILE` and `ROW`.

    `after` is a struct: it has the same fields in each row. A generated column that the export lacks is NULL.
    """
    names, sent = step.state.schema.column_names, {name.lower(): name for name in rows.columns}
    texts = {name: F.col(quoted(sent[name.lower()])) if name.lower() in sent else F.lit(None) for name in names}
    after = F.struct(*(text.cast("string").alias(name) for name, text in texts.items()))
    key = F.array(*(texts[name].cast("string") for name in step.key or names))
    place = dict(zip(POSITION, (F.lit(f"{BASELINE_TOPIC}{step.baseline}"), F.col(FILE), F.col(ROW)), strict=True))
    return rows.select(
        key.alias("key"),
        after.alias("after"),
        F.lit(DIALECT).alias("dialect"),
        F.lit(step.commit_ts).cast("bigint").alias("_commit_ts"),
        *(column.alias(f"_{name}") for name, column in place.items()),
        F.lit(1).cast("bigint").alias("delta"),
        F.lit(True).alias("counts"),
        *(F.lit(False).alias(name) for name in ("deleted", "moved", "update_only", "order_unknown")),
        F.lit(None)
        .cast("struct<commit_ts: bigint, topic: string, partition: int, offset: bigint>")
        .alias("key_only_since"),
    )


def baseline_encodings(step: LoadBaseline) -> tuple[tuple[str, dict[str, str]], ...]:
    """`wire_values.Encodings` of a baseline: bytes are hexadecimal, ENUM and SET are labels."""
    encodings = {}
    for column in step.state.schema.columns:
        if column.type.base in ("enum", "set"):
            encodings[column.name] = "STRING"
        elif column.type.base == "bit" or isinstance(spark_type(column.type), BinaryType):
            encodings[column.name] = HEX
    return ((DIALECT, encodings),)


def baseline_records(changes: DataFrame) -> DataFrame:
    """Each row as a record of `raw_topic_snapshot`, for dead letters: its texts as a JSON object."""
    return changes.select(
        F.lit(0).cast("bigint").alias("batch_id"),
        *(F.col(f"_{name}").alias(name) for name in POSITION),
        F.lit(None).cast("timestamp").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        F.to_json("after", {"ignoreNullFields": "false"}).cast("binary").alias("value"),
    )
