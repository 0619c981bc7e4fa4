"""TIMESTAMP keys and values in the hour that a clock shows twice: a named doubt, never one row for two in silence."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.gaps import GapKind
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import create
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.messages import Topic, ddl, row, watermark

_TYPES = {"id": "int", "at": "timestamp", "local": "datetime"}
# table → the rows that it has of (at, local), and the gaps that it is to have, by their column
_TABLES: dict[str, tuple[list[tuple[str | None, str | None]], list[tuple[GapKind, str | None]]]] = {
    "clear": ([("2024-11-03 00:59:59", "2024-11-03 01:30:00"), (None, "2024-03-10 02:30:00")], []),
    "twice": ([("2024-11-03 01:30:00", None)], [(GapKind.AMBIGUOUS_TIME, "at")]),
    "never": ([("2024-03-10 02:30:00", None)], [(GapKind.NONEXISTENT_TIME, "at")]),
}


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    folder = tmp_path_factory.mktemp("local_times")
    paths = LakePaths(str(folder / "lake"), "shop")
    topic = Topic()
    for table, (rows, _) in _TABLES.items():
        definition = "`id` INT PRIMARY KEY, `at` TIMESTAMP NULL, `local` DATETIME"
        topic.send(ddl(f"CREATE TABLE `{table}` ({definition})", 1, table=table, kind="CREATE"), 0)
        for number, (at, local) in enumerate(rows):
            data = {"id": str(number), "at": at, "local": local}
            topic.send(row("INSERT", table, 2 + number, data, types=_TYPES, key=["id"]), 1)
    topic.send(ddl("CREATE TABLE `keyed` (`at` TIMESTAMP PRIMARY KEY, `v` INT)", 1, table="keyed", kind="CREATE"), 0)
    for step, v in ((2, "1"), (3, "2")):
        data = {"at": "2024-11-03 01:30:00", "v": v}
        topic.send(row("INSERT", "keyed", step, data, types={"at": "timestamp", "v": "int"}, key=["at"]), 1)
    for partition in (0, 1):
        topic.send(watermark(50), partition)
    topic.write(folder / "captures", "all.jsonl")
    ingest(spark, paths, folder / "captures", time_zone="America/New_York")
    return paths


def _gaps(spark: SparkSession, lake: LakePaths, table: str) -> list[tuple[GapKind, str | None]]:
    state = table_state(spark, lake.mirror(TableName("db", table)))
    assert state is not None
    return [(gap.kind, gap.column) for gap in MirrorState.from_properties(state.properties).gaps]


@pytest.mark.parametrize("table", _TABLES)
def test_a_text_that_does_not_tell_its_instant_is_named(table: str, lake: LakePaths, spark: SparkSession) -> None:
    assert _gaps(spark, lake, table) == _TABLES[table][1]


def test_two_keys_with_one_text_are_one_row_and_a_doubt(lake: LakePaths, spark: SparkSession) -> None:
    assert spark.read.format("delta").load(lake.mirror(TableName("db", "keyed"))).count() == 1
    assert _gaps(spark, lake, "keyed") == [(GapKind.AMBIGUOUS_TIME, "at")]


def test_values_of_a_former_time_zone_are_named(spark: SparkSession, tmp_path: Path) -> None:
    """The default UTC is corrected after the first runs: rows of both zones are in one mirror."""
    stream, types = Stream(spark, tmp_path), {"id": "int", "at": "timestamp"}

    def put(step: int, number: str) -> tuple[str, int]:
        data: dict[str, str | None] = {"id": number, "at": "2024-05-06 10:00:00"}
        return row("INSERT", "timed", step, data, types=types, key=["id"]), 1

    timed = "CREATE TABLE `{}` (`id` INT PRIMARY KEY, `at` TIMESTAMP NULL)"
    stream.write_slice(10, create("timed", 1, timed), create("plain", 1), put(3, "1"))
    stream.run(time_zone="UTC")
    stream.write_slice(20, put(13, "2"))
    stream.run(time_zone="Asia/Shanghai")
    stream.write_slice(30, put(23, "3"))
    stream.run(time_zone="Asia/Shanghai")
    gaps = {mirror["table"]: mirror["gaps"] for mirror in stream.cuts()[-1]["mirrors"]}
    named = (
        "TIMESTAMP values before cut 2 were read in the time_zone UTC, not Asia/Shanghai; a rebuild reads them again"
    )
    assert gaps == {"timed": [named], "plain": []}
