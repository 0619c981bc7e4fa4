"""Watermarks and checkpoints later than their own records: applied, they would make all later changes late."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.contracts.canal_json import READ_BY
from cdc_pipeline.dialects import unified
from cdc_pipeline.dialects.decode import decode_with_reasons
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline_tests.support.dialect_cases import changed, raw
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import EPOCH_MS, Topic, ddl, row, tso, watermark, watermark_tso

_HOUR = 3_600_000
_YEAR_2100 = 4_102_444_800_000
_MARK = watermark(0)
_CHECKPOINT = b'{"checkpoint-ts":%d}' % tso(0)
# name → (value, the record's time in ms, the rule that it breaks). The watermark itself is EPOCH_MS, its `ts` 5 ms later
_CASES: dict[str, tuple[bytes, int | None, str | None]] = {
    "as it is sent": (_MARK.encode(), EPOCH_MS + 7, None),
    "an hour ahead": (_MARK.encode(), EPOCH_MS - _HOUR, None),
    "more than that": (_MARK.encode(), EPOCH_MS - _HOUR - 1, "watermark_is_not_ahead"),
    "whatever its own ts says": (changed(_MARK, ts=EPOCH_MS), EPOCH_MS - 2 * _HOUR, "watermark_is_not_ahead"),
    "a topic that is produced anew, years later": (_MARK.encode(), EPOCH_MS + 10**11, None),
    "no time of the record": (_MARK.encode(), None, None),
    "a time of 0": (_MARK.encode(), 0, None),
    "a time of -1, ahead of its ts": (changed(_MARK, ts=EPOCH_MS - _HOUR - 1), -1, "watermark_is_not_ahead"),
    "seconds, ahead of its ts": (
        changed(_MARK, ts=EPOCH_MS - _HOUR - 1),
        EPOCH_MS // 1000,
        "watermark_is_not_ahead",
    ),
    "seconds, and an hour ahead of its ts": (changed(_MARK, ts=EPOCH_MS - _HOUR), EPOCH_MS // 1000, None),
    "seconds": (_MARK.encode(), EPOCH_MS // 1000, None),
    "no time of the record, ahead of its ts": (changed(_MARK, ts=EPOCH_MS - 2 * _HOUR), None, "watermark_is_not_ahead"),
    "no time at all": (changed(_MARK, ts=0), None, None),
    "a checkpoint": (_CHECKPOINT, EPOCH_MS, None),
    "a checkpoint of a file that was copied later": (_CHECKPOINT, EPOCH_MS + 10**10, None),
    "a checkpoint ahead of its file": (_CHECKPOINT, EPOCH_MS - 2 * _HOUR, "checkpoint_is_not_ahead"),
    "a checkpoint of a file without a time": (_CHECKPOINT, 0, None),
    "a checkpoint of a file with a time in seconds": (_CHECKPOINT, EPOCH_MS // 1000, None),
}


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> dict[str, tuple[str, str | None]]:
    return _decoded(spark, _CASES, None)


def _decoded(
    spark: SparkSession, cases: Mapping[str, tuple[bytes, int | None, str | None]], read_by: Column | None
) -> dict[str, tuple[str, str | None]]:
    """Case → kind and broken rule."""
    times = F.array(*(F.lit(None if ms is None else _instant(ms)).cast("timestamp") for _, ms, _ in cases.values()))
    records = raw(spark, {name: value for name, (value, _, _) in cases.items()})
    sent = records.withColumn("timestamp", F.get(times, F.col("offset").cast("int")))
    sent = sent if read_by is None else sent.withColumn(READ_BY, read_by)
    names = list(cases)
    return {names[row["offset"]]: (row["kind"], row["rule"]) for row in decode_with_reasons(sent).collect()}


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


def test_no_watermark_is_later_than_the_clock_of_the_reader(spark: SparkSession) -> None:
    read_by = F.array(F.lit(EPOCH_MS - 2 * _HOUR).cast("bigint"))
    for name, (_, rule) in _decoded(spark, _CASES, read_by).items():
        assert rule == ("checkpoint_is_not_ahead" if "checkpoint" in name else "watermark_is_not_ahead"), name
    read_by = F.array(F.lit(EPOCH_MS + 10**12).cast("bigint"))
    assert _decoded(spark, _CASES, read_by) == _decoded(spark, _CASES, None)


@pytest.mark.parametrize("name", _CASES)
def test_watermarks(name: str, found: dict[str, tuple[str, str | None]]) -> None:
    rule = _CASES[name][2]
    assert found[name] == (unified.WATERMARK if rule is None else unified.DEAD, rule)


def test_cuts_go_on_by_the_other_watermarks(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    topic = Topic()
    topic.send(ddl("CREATE TABLE t (id INT PRIMARY KEY)", 1, table="t", kind="CREATE"))
    topic.send(changed(watermark(2), _tidb={"watermarkTs": (10**13 - 1) << 18}).decode(), sent=EPOCH_MS)
    topic.send(row("INSERT", "t", 3, {"id": "1"}, key=["id"])).send(watermark(4))
    topic.write(tmp_path / "captures", "1.jsonl")
    report = ingest(spark, paths, tmp_path / "captures")
    assert report.resolved_tso == watermark_tso(4)
    topic.send(row("INSERT", "t", 5, {"id": "2"}, key=["id"])).send(watermark(6))
    topic.write(tmp_path / "captures", "2.jsonl")
    report = ingest(spark, paths, tmp_path / "captures", run_id="2")
    assert (report.resolved_tso, [entry.rows for entry in report.mirrors]) == (watermark_tso(6), [2])
    assert report.totals.late == 0
    letters = spark.read.format("delta").load(paths.table("dead_letters")).collect()
    assert [letter["rule"] for letter in letters] == ["watermark_is_not_ahead"]
    assert "which is 2286-11-20 17:46:39.999 UTC, sent or read at 2026-11-21 08:11:30" in letters[0]["reason"]


def _stream(folder: Path) -> Topic:
    """A row, and a watermark of 2100 in a record of 2100; files 1 and 2."""
    topic = Topic()
    topic.send(ddl("CREATE TABLE t (id INT PRIMARY KEY)", 1, table="t", kind="CREATE"))
    topic.send(row("INSERT", "t", 2, {"id": "1"}, key=["id"])).send(watermark(3))
    topic.send(changed(watermark(4), es=_YEAR_2100, _tidb={"watermarkTs": _YEAR_2100 << 18}).decode(), sent=_YEAR_2100)
    topic.write(folder, "1.jsonl")
    return topic.send(row("INSERT", "t", 5, {"id": "2"}, key=["id"])).send(watermark(6))


def test_a_watermark_of_2100_in_a_record_of_2100(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    topic = _stream(tmp_path / "captures")
    assert ingest(spark, paths, tmp_path / "captures").resolved_tso == watermark_tso(3)
    topic.write(tmp_path / "captures", "2.jsonl")
    report = ingest(spark, paths, tmp_path / "captures")
    assert (report.resolved_tso, [entry.rows for entry in report.mirrors]) == (watermark_tso(6), [2])
    (letter,) = spark.read.format("delta").load(paths.table("dead_letters")).collect()
    assert letter["rule"] == "watermark_is_not_ahead"
    assert "which is 2100-01-01 00:00:00 UTC, sent or read at 20" in letter["reason"]


def test_a_lake_with_a_cut_of_2100_goes_on_after_a_rebuild(
    spark: SparkSession, paths: LakePaths, tmp_path: Path
) -> None:
    topic = _stream(tmp_path / "captures")
    assert ingest(spark, paths, tmp_path / "captures", clock_skew_ms=_YEAR_2100).resolved_tso == _YEAR_2100 << 18
    topic.write(tmp_path / "captures", "2.jsonl")
    report = ingest(spark, paths, tmp_path / "captures")
    assert (report.resolved_tso, [entry.rows for entry in report.mirrors]) == (_YEAR_2100 << 18, [1])
    Rebuilder(CutMaker(Lake(spark, paths), "again", "UTC", 2, lambda _: None)).rebuild()
    topic.send(row("INSERT", "t", 7, {"id": "3"}, key=["id"])).send(watermark(8))
    topic.write(tmp_path / "captures", "3.jsonl")
    report = ingest(spark, paths, tmp_path / "captures")
    assert (report.resolved_tso, [entry.rows for entry in report.mirrors]) == (watermark_tso(8), [3])
