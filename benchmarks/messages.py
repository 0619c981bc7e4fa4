"""Generated records of TiCDC Canal-JSON with the TiDB extension, for a topic of four partitions.

63 % are UPDATE, with every column in `old` as TiCDC sends it by default, 30 % INSERT and 7 % DELETE, over 75,000 keys;
one of 10,000 is a TIDB_WATERMARK. A key stays in its partition, and commitTs ascends in each. An INSERT may have an existing
key: the messages are for decoding, not for merging.

Spark generates them from numbers, so no record passes through Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.sources.records import RECORD

PARTITIONS = 4
KEYS = 75_000
UPDATE_PERCENT, INSERT_PERCENT = 63, 30
OFFSETS_PER_WATERMARK = 10_000
ROWS_PER_MS = 8
FIRST_MS = 1_795_248_823_000
TSO_SHIFT = 18


@dataclass(frozen=True)
class MessageColumn:
    """A column of the upstream table."""

    name: str
    mysql_type: str
    sql_type: int
    text: str
    """SQL of its value as MySQL text, over `key` and `$change` (a different number for each image of a row)."""

    def value(self, change: str) -> Column:
        """The value as JSON string or null."""
        text = F.expr(self.text.replace("$change", f"({change})"))
        escaped = F.replace(F.replace(text, F.lit("\\"), F.lit("\\\\")), F.lit('"'), F.lit('\\"'))
        return F.coalesce(F.concat(F.lit('"'), escaped, F.lit('"')), F.lit("null"))


@dataclass(frozen=True)
class MessageShape:
    """An upstream table, whose first column is the key. Its columns determine the message size."""

    database: str
    table: str
    columns: tuple[MessageColumn, ...]


SMALL = MessageShape(
    "shop",
    "accounts",
    (
        MessageColumn("id", "bigint", -5, "cast(key AS STRING)"),
        MessageColumn("owner", "varchar", 12, "concat('o-', lpad(key, 6, '0'))"),
        MessageColumn("balance", "decimal", 3, "cast(cast($change % 1000003 / 100 AS DECIMAL(12, 2)) AS STRING)"),
        MessageColumn(
            "updated_at", "datetime", 93, f"cast(timestamp_seconds({FIRST_MS // 1000} + $change DIV 1000) AS STRING)"
        ),
    ),
)
LARGE = MessageShape(
    "shop",
    "orders",
    (
        MessageColumn("id", "bigint", -5, "cast(key AS STRING)"),
        MessageColumn("customer_id", "bigint unsigned", -5, "cast(key % 9973 AS STRING)"),
        MessageColumn("number", "varchar", 12, "concat('ORD-2026-', lpad(key, 6, '0'))"),
        MessageColumn(
            "status", "varchar", 12, "element_at(array('new', 'paid', 'sent'), cast($change DIV 7 % 3 + 1 AS INT))"
        ),
        MessageColumn("currency", "char", 1, "if(key DIV 4 % 2 = 0, 'EUR', 'JPY')"),
        MessageColumn("total", "decimal", 3, "cast(cast($change % 1000003 / 100 AS DECIMAL(12, 2)) AS STRING)"),
        MessageColumn("tax", "decimal", 3, "cast(cast($change % 99991 / 100 AS DECIMAL(12, 2)) AS STRING)"),
        MessageColumn("quantity", "int", 4, "cast(key % 12 + 1 AS STRING)"),
        MessageColumn(
            "note",
            "text",
            2005,
            "if(key DIV 4 % 5 = 0, NULL, 'Sencha 煎茶, two bags; leave them at the café next door, not at the gate')",
        ),
        MessageColumn("attributes", "json", 12, 'concat(\'{"channel": "web", "rank": \', key % 7, \'}\')'),
        MessageColumn("created_at", "datetime", 93, f"cast(timestamp_seconds({FIRST_MS // 1000} + key) AS STRING)"),
        MessageColumn(
            "updated_at", "timestamp", 93, f"cast(timestamp_seconds({FIRST_MS // 1000} + $change DIV 1000) AS STRING)"
        ),
    ),
)


def topic_records(spark: SparkSession, shape: MessageShape, first_offset: int, count: int) -> DataFrame:
    """`count` records with the columns of `RECORD`, from offset `first_offset` in each partition.

    `count` is a multiple of PARTITIONS. Higher offsets have a higher commitTs.
    """
    per_partition = count // PARTITIONS
    numbered = (
        spark.range(0, count, 1, PARTITIONS)
        .selectExpr(
            f"cast(id DIV {per_partition} AS INT) AS partition", f"id % {per_partition} + {first_offset} AS offset"
        )
        .withColumn("change", F.expr(f"offset * {PARTITIONS} + partition"))
        .withColumn("ms", F.expr(f"{FIRST_MS} + change DIV {ROWS_PER_MS}"))
        .withColumn("chance", F.expr("pmod(xxhash64(change), 100)"))
        .withColumn("key", F.expr(f"pmod(xxhash64(change, 1), {KEYS // PARTITIONS}) * {PARTITIONS} + partition"))
        .withColumn("order", F.expr("pmod(xxhash64(change, 2), 3)"))
    )
    is_watermark = F.expr(f"offset % {OFFSETS_PER_WATERMARK} = {OFFSETS_PER_WATERMARK - 1}")
    return numbered.select(
        F.lit(f"{shape.database}-{shape.table}").alias("topic"),
        "partition",
        "offset",
        F.expr("timestamp_millis(ms + 1)").alias("timestamp"),
        F.lit(None).cast("binary").alias("key"),
        F.when(is_watermark, _watermark()).otherwise(_row_change(shape)).cast("binary").alias("value"),
        F.array().cast(RECORD["headers"].dataType).alias("headers"),
    )


def _row_change(shape: MessageShape) -> Column:
    columns = shape.columns
    image = _image(columns, f"change + {KEYS}")
    before = _image(columns, "change")
    is_update = F.expr(f"chance < {UPDATE_PERCENT}")
    is_insert = F.expr(f"chance < {UPDATE_PERCENT + INSERT_PERCENT}")
    return F.concat(
        F.lit(
            f'{{"id":0,"database":"{shape.database}","table":"{shape.table}","pkNames":["{columns[0].name}"],'
            '"isDdl":false,"type":"'
        ),
        F.when(is_update, F.lit("UPDATE")).when(is_insert, F.lit("INSERT")).otherwise(F.lit("DELETE")),
        F.lit('","es":'),
        F.col("ms"),
        F.lit(',"ts":'),
        F.expr("ms + 1"),
        F.lit(f',"sql":"","sqlType":{_sql_types(columns)},"mysqlType":'),
        _mysql_types(columns),
        F.lit(',"old":'),
        F.when(is_update, F.concat(F.lit("["), before, F.lit("]"))).otherwise(F.lit("null")),
        F.lit(',"data":['),
        image,
        F.lit('],"_tidb":{"commitTs":'),
        F.expr(f"shiftleft(ms, {TSO_SHIFT}) + change % {ROWS_PER_MS}"),
        F.lit("}}"),
    )


def _watermark() -> Column:
    """A watermark at the end of the previous millisecond, up to which every partition is complete."""
    return F.concat(
        F.lit('{"id":0,"database":"","table":"","pkNames":null,"isDdl":false,"type":"TIDB_WATERMARK","es":'),
        F.expr("ms - 1"),
        F.lit(',"ts":'),
        F.expr("ms + 1"),
        F.lit(',"sql":"","sqlType":null,"mysqlType":null,"data":null,"old":null,"_tidb":{"watermarkTs":'),
        F.expr(f"shiftleft(ms, {TSO_SHIFT}) - 1"),
        F.lit("}}"),
    )


def _image(columns: Iterable[MessageColumn], change: str) -> Column:
    parts: list[Column] = []
    for column in columns:
        parts += [F.lit(f'{"," if parts else "{"}"{column.name}":'), column.value(change)]
    return F.concat(*parts, F.lit("}"))


def _sql_types(columns: Iterable[MessageColumn]) -> str:
    return "{" + ",".join(f'"{column.name}":{column.sql_type}' for column in columns) + "}"


def _mysql_types(columns: tuple[MessageColumn, ...]) -> Column:
    """One of three key orders, because TiCDC writes it from a Go map."""
    half = len(columns) // 2
    in_order, rotated, reversed_order = (
        F.lit("{" + ",".join(f'"{column.name}":"{column.mysql_type}"' for column in order) + "}")
        for order in (columns, columns[half:] + columns[:half], columns[::-1])
    )
    choice = F.col("order")
    return F.when(choice == 0, in_order).when(choice == 1, rotated).otherwise(reversed_order)
