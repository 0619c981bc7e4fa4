"""Canal with `canal.mq.dynamicTopic`: a thread per topic sends its part of a batch, so `ts` does not order the topics."""

from __future__ import annotations

import json
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import EPOCH_MS, Topic, canal, canal_ddl


def _sent(message: str, batch: int, ms: int) -> str:
    return json.dumps(json.loads(message) | {"id": batch, "ts": EPOCH_MS + ms})


def test_a_row_and_a_rename_in_two_topics(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    """The cut-over of gh-ost: the message of RENAME has the first new name, and so its topic."""
    orders, others = Topic("orders"), Topic("others")
    for table, topic in (("orders", orders), ("_orders_gho", others)):
        sql = f"CREATE TABLE {table} (id INT PRIMARY KEY)"
        topic.send(_sent(canal_ddl(sql, 1, table=table, kind="CREATE"), 5, 1000))
    rename = canal_ddl(
        "RENAME TABLE orders TO _orders_del, _orders_gho TO orders", 2, table="_orders_del", kind="RENAME"
    )
    others.send(_sent(rename, 7, 2502))
    for number, batch, ms in ((8, 6, 1900), (9, 7, 2501), (10, 8, 2600)):
        row = canal("INSERT", "orders", 2, [{"id": str(number)}], types={"id": "int"}, key=["id"])
        orders.send(_sent(row, batch, ms))
    orders.write(tmp_path / "captures", "orders.jsonl")
    others.write(tmp_path / "captures", "others.jsonl")
    gaps = {entry.name.table: entry.gaps for entry in ingest(spark, paths, tmp_path / "captures").mirrors}
    assert sorted(gaps) == ["_orders_del", "orders"]
    doubt = "1 row change(s), the first at orders/0@2, have the same time as a statement in another partition"
    assert [gap.split(";")[0] for gap in gaps["orders"]] == [doubt]
