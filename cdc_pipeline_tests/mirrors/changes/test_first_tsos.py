"""A stream that gets TSOs after cuts without them: TiCDC's `enable-tidb-extension`, switched on later."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.errors import LakeError
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark


def _insert(table: str, step: int, key: str, *, extension: bool) -> str:
    return row("INSERT", table, step, {"id": key}, key=["id"] if table == "t" else [], extension=extension)


def _resent(message: str) -> str:
    """With its TSO, in the millisecond of its first sending."""
    sent = json.loads(message)
    ms = sent["es"] + 1
    return json.dumps(sent | {"es": ms, "_tidb": {"commitTs": (ms << 18) + 3}})


def _rows(spark: SparkSession, paths: LakePaths, table: str) -> list[str]:
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", table)))
    return sorted(found["id"] for found in mirror.collect())


def test_a_stream_that_gets_tsos_is_rebuilt(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    topic, captures = Topic(), tmp_path / "captures"

    def ingested(number: int, *messages: str) -> None:
        for message in messages:
            topic.send(message)
        topic.write(captures, f"{number}.jsonl")
        ingest(spark, paths, captures)
        assert lake_balance(Lake(spark, paths)).is_balanced

    tables = [
        ddl(f"CREATE TABLE {name} (id VARCHAR(9){key})", 1, kind="CREATE", extension=False)
        for name, key in (("t", " PRIMARY KEY"), ("bag", ""))
    ]
    rows = [_insert(table, step, str(step), extension=False) for step in (2, 4) for table in ("t", "bag")]
    ingested(1, *tables, *rows, ddl("TRUNCATE TABLE t", 5, extension=False))
    again = [_resent(_insert(table, 4, "4", extension=True)) for table in ("t", "bag")]
    new = [_insert(table, 6, "6", extension=True) for table in ("t", "bag")]
    with pytest.raises(LakeError, match="the stream has TSOs now"):
        ingested(2, *again, _resent(ddl("TRUNCATE TABLE t", 5)), *new, watermark(8))
    assert (_rows(spark, paths, "t"), _rows(spark, paths, "bag")) == ([], ["2", "4"])
    Rebuilder(CutMaker(Lake(spark, paths), "rebuild", "UTC", 2, lambda _: None)).rebuild()
    ingested(3, _insert("t", 9, "9", extension=True), watermark(10))
    assert (_rows(spark, paths, "t"), _rows(spark, paths, "bag")) == (["6", "9"], ["2", "4", "6"])
