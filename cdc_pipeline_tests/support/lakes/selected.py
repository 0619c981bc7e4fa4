"""A pipeline with a table selection that ingests messages slice by slice."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.ingested_stories import assert_mirror
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import Table
from cdc_pipeline_tests.support.messages import Topic, watermark

PARTITIONS = (0, 1, 2)


Message = tuple[str, int]


class Ingested:
    """A lake and its pipeline, whose selection may change between slices."""

    def __init__(
        self, spark: SparkSession, folder: Path, selection: TableSelection, columns: ColumnRules | None = None
    ) -> None:
        self.spark, self.folder, self.selection = spark, folder, selection
        self.columns = columns or ColumnRules()
        self.paths = LakePaths(str(folder / "lake"), "p")
        self.topic = Topic()
        self.parts = 0

    def send(self, messages: list[Message], end: int | None) -> CutReport:
        """Ingests a slice and makes a cut. `end`: step of the watermark that ends each partition; None: no watermark."""
        for payload, partition in messages:
            self.topic.send(payload, partition)
        for partition in PARTITIONS if end is not None else ():
            self.topic.send(watermark(end or 0), partition)
        self.parts += 1
        self.topic.write(self.folder / "captures", f"{self.parts}.jsonl")
        captures = self.folder / "captures"
        report = ingest(self.spark, self.paths, captures, selection=self.selection, columns=self.columns)
        assert lake_balance(Lake(self.spark, self.paths)).is_balanced
        return report

    def maker(self) -> CutMaker:
        return CutMaker(
            Lake(self.spark, self.paths),
            "again",
            "UTC",
            2,
            lambda line: None,
            selection=self.selection,
            columns=self.columns,
        )

    def assert_mirrors(self, expected: dict[str, Table]) -> None:
        """The lake has exactly these mirrors. `expected`: by `database.table`."""
        for name, table in expected.items():
            assert_mirror(self.spark, self.paths, TableName(*name.split(".")), table)
        found = {str(name) for name in published_cut(Lake(self.spark, self.paths)).names}
        assert found == set(expected)

    def upstream(self, name: str) -> list[str]:
        """The upstream tables of the mirror."""
        table = table_state(self.spark, self.paths.mirror(TableName(*name.split("."))))
        assert table is not None
        return sorted(map(str, MirrorState.from_properties(table.properties).upstream_tables))

    def statuses(self) -> dict[str, str]:
        history = self.spark.read.format("delta").load(self.paths.table("ddl_history"))
        return {row["sql"]: row["status"] for row in history.collect()}

    def gaps(self, name: str) -> tuple[str, ...]:
        entries = self.spark.read.format("delta").load(self.paths.table("consistent_cuts")).orderBy("cut_id").collect()
        found = {f"{row['database']}.{row['table']}": row["gaps"] for row in entries[-1]["mirrors"]}
        return tuple(found[name])
