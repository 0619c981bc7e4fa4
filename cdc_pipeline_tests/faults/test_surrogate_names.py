"""Names with half of a surrogate pair, which no table has: their dead letters are no gap of another table."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_report import published_entries
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, row, watermark

# tables that exist: what decoders make of half a pair, and parts of the escapes below
_TABLES = ("?", "a?", "\ufffd", "a", "A", "41", "a41", "\\ud800")
_HALVES = ("\\ud800", "a\\ud800", "\\udc00", "\\udc41", "a\\uDC41", "\\ud800\\ud800", "\\\\\\ud800")


def _insert(table: str, value: str, database: str = "db") -> str:
    types = {"id": "int", "v": "varchar(20)"}
    return row("INSERT", table, 2, {"id": "1", "v": value}, types=types, key=["id"], database=database)


def test_gaps_of_names_with_half_of_a_surrogate_pair(spark: SparkSession, paths: LakePaths, tmp_path: Path) -> None:
    topic = Topic()
    for name in _TABLES:
        topic.send(_insert(name, "a"))
    for half in _HALVES:
        topic.send(_insert("HALF", "a").replace("HALF", half))
        topic.send(_insert("a", "a", database="HALF").replace("HALF", half))
    topic.send(_insert("a?", "HALF").replace("HALF", "\\ud800"))  # the value has it, and the table is known
    topic.send(watermark(10)).write(tmp_path / "captures", "1.jsonl")
    ingest(spark, paths, tmp_path / "captures")
    entries = published_entries(published_cut(Lake(spark, paths)), paths)
    found = {entry.name.table: sum("dead letters" in gap for gap in entry.gaps) for entry in entries}
    assert found == {name: int(name == "a?") for name in _TABLES}
    assert {entry.name.database for entry in entries} == {"db"}
    letters = Lake(spark, paths).read("dead_letters")
    assert letters.count() == 2 * len(_HALVES) + 1
    assert letters.where((F.col("table") == "a?") & (F.col("database") == "db")).count() == 1
