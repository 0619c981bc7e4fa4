"""Topics of generated records in a real broker."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.messages import FIRST_MS, PARTITIONS, SMALL, TSO_SHIFT, MessageShape, topic_records
from cdc_pipeline_tests.local_kafka.feed import create_topics

CREATE = (
    "CREATE TABLE `accounts` "
    "(`id` BIGINT PRIMARY KEY, `owner` VARCHAR(40), `balance` DECIMAL(12,2), `updated_at` DATETIME)"
)


def fill_topic(spark: SparkSession, bootstrap: str, topic: str, partitions: int, count: int) -> None:
    """Creates the topic with `count` records of `messages.SMALL`, after a CREATE TABLE as first record of partition 0.

    `partitions` is 1 or `messages.PARTITIONS`.
    """
    create_topics(bootstrap, {topic: partitions})
    head = (
        '{"id":0,"database":"shop","table":"accounts","pkNames":null,"isDdl":true,"type":"CREATE",'
        f'"es":{FIRST_MS - 1},"ts":{FIRST_MS},"sql":"{CREATE}","sqlType":null,"mysqlType":null,"data":null,"old":null,'
        f'"_tidb":{{"commitTs":{(FIRST_MS - 1) << TSO_SHIFT}}}}}'
    )
    _write(
        spark.range(1).select(F.lit(head).cast("binary").alias("value"), F.lit(0).alias("partition")), bootstrap, topic
    )
    if partitions > 1:
        send(spark, bootstrap, topic, SMALL, 0, count)
        return
    _write_in_order(topic_records(spark, SMALL, 0, count), bootstrap, topic)


def fill_topic_with_rows(spark: SparkSession, bootstrap: str, topic: str, count: int) -> None:
    """Creates a topic of one partition with the row changes of `fill_topic`: no CREATE TABLE, no watermarks."""
    create_topics(bootstrap, {topic: 1})
    is_watermark = F.get_json_object(F.col("value").cast("string"), "$.type") == "TIDB_WATERMARK"
    _write_in_order(topic_records(spark, SMALL, 0, count).where(~is_watermark), bootstrap, topic)


def send(spark: SparkSession, bootstrap: str, topic: str, shape: MessageShape, first_offset: int, count: int) -> None:
    """Sends `count` records of the shape to the topic's four partitions, from offset `first_offset` of each."""
    _write(topic_records(spark, shape, first_offset, count), bootstrap, topic)


def _write_in_order(records: DataFrame, bootstrap: str, topic: str) -> None:
    """Writes the records of all partitions to partition 0, by ascending commitTs."""
    number = F.col("offset") * PARTITIONS + F.col("partition")
    numbered = records.select("value", F.lit(0).alias("partition"), number.alias("offset"))
    _write(numbered.repartitionByRange(1, "offset").sortWithinPartitions("offset"), bootstrap, topic)


def _write(records: DataFrame, bootstrap: str, topic: str) -> None:
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": topic,
        "kafka.linger.ms": "20",
        "kafka.batch.size": "262144",
    }
    records.select("value", "partition").write.format("kafka").options(**options).save()
