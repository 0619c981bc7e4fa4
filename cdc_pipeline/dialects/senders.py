"""Which topics have messages with `id` 0 that are Canal's and not TiCDC's.

TiCDC always writes `id` 0 (ticdc-facts §1). Other services that write Canal's format may do the same. Without `_tidb`, only
the messages of a topic together show the sender:

- A message with several rows is not TiCDC's.
- TiCDC's `es` is the ms of a commit. If all `es` are whole seconds, they are times of a binlog.

So the messages are TiCDC's if some `es` is no whole second and none has several rows. One message alone proves nothing: one
of a thousand messages of TiCDC has a whole second.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_pipeline.contracts.json_text import OPTIONS
from cdc_pipeline.dialects.envelope import BATCH, ZERO_IS_CANAL
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.tables.batches import recent_dialects
from cdc_pipeline.positions import POSITION
from cdc_pipeline.sources.intake import OffsetRange
from cdc_pipeline.sources.records import may_have_zero_id

_FIELDS = f"{BATCH} BIGINT, es BIGINT, data ARRAY<STRING>, _tidb STRING"
_SAMPLE = 10_000
"""About how many records of a topic are searched. A smaller batch is searched completely."""
_UNNUMBERED = "dialect = 'canal' AND message_id IS NULL"


def with_senders(records: DataFrame, topics: Collection[str]) -> DataFrame:
    """Adds `envelope.ZERO_IS_CANAL` to raw records. `topics`: those whose messages with `id` 0 are Canal's."""
    return records.withColumn(ZERO_IS_CANAL, F.col("topic").isin(*sorted(topics))) if topics else records


def unnumbered_topics(lake: Lake) -> set[str]:
    """The topics that have decoded messages of Canal without batch numbers."""
    if "canal" not in recent_dialects(lake, 0):
        return set()
    return _topics(lake, ("change_log", "ddl_history"), F.expr(_UNNUMBERED))


def topics_of_canal(lake: Lake, batch: DataFrame, batch_id: int, ranges: Iterable[OffsetRange]) -> set[str]:
    """The topics of a batch of raw records whose messages with `id` 0 are Canal's.

    Depends on the batch and on those decoded before it only, so decoding a batch again gives the same result. `ranges`: the
    offsets of the batch.
    """
    found = _evidence(batch, ranges)
    earlier = F.col("batch_id") < batch_id
    several = {topic for topic, (_, has_several) in found.items() if has_several}
    if open_topics := found.keys() - several:
        is_of_several = F.expr(f"{_UNNUMBERED} AND row > 0") & F.col("topic").isin(*sorted(open_topics))
        several |= _topics(lake, ("change_log",), earlier & is_of_several)
    with_ms = {topic for topic, (has_ms, _) in found.items() if has_ms}
    if open_topics := found.keys() - several - with_ms:
        is_ticdc = F.expr("dialect = 'ticdc' AND es % 1000 <> 0") & F.col("topic").isin(*sorted(open_topics))
        with_ms |= _topics(lake, ("change_log", "ddl_history"), earlier & is_ticdc)
    return several | (found.keys() - with_ms)


def _evidence(batch: DataFrame, ranges: Iterable[OffsetRange]) -> dict[str, tuple[bool, bool]]:
    """Topic → whether a message with `id` 0 and without `_tidb` has an `es` that is no whole second, and whether one has
    several rows."""
    records: dict[str, int] = {}
    for span in ranges:
        records[span.topic] = records.get(span.topic, 0) + span.records
    message = F.from_json(F.col("value").cast("string"), _FIELDS, OPTIONS)
    rows = (
        batch.where(may_have_zero_id(F.col("value")) & _is_sampled(records))
        .select("topic", message.alias("message"))
        .where(f"message.{BATCH} = 0 AND message._tidb IS NULL AND message.es IS NOT NULL")
        .groupBy("topic")
        .agg(
            F.max(F.expr("message.es % 1000 <> 0")).alias("has_ms"),
            F.max(F.expr("coalesce(size(message.data), 0) > 1")).alias("has_several"),
        )
        .collect()
    )
    return {row["topic"]: (row["has_ms"], row["has_several"]) for row in rows}


def _is_sampled(records: dict[str, int]) -> Column:
    """Whether a record is in the sample. `records`: topic → its number of records."""
    strides = {topic: count // _SAMPLE for topic, count in records.items() if count >= 2 * _SAMPLE}
    sampled = F.lit(True)
    for topic, stride in sorted(strides.items()):
        sampled &= (F.col("topic") != topic) | (F.pmod(F.xxhash64(*POSITION), F.lit(stride)) == 0)
    return sampled


def _topics(lake: Lake, tables: Iterable[str], condition: Column) -> set[str]:
    """The topics of the rows of the tables that meet the condition."""
    frames = [frame for table in tables if (frame := lake.read_if_exists(table)) is not None]
    return {row["topic"] for frame in frames for row in frame.where(condition).select("topic").distinct().collect()}
