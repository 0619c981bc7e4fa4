"""Tables whose keys only the YAML field `keys` declares, with partial images, compared with the model."""

from __future__ import annotations

import json
import re
from pathlib import Path

from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline_tests.histories.ddl import CreateTable
from cdc_pipeline_tests.histories.ingested import SEED, IngestedHistories, RandomKiller, histories_of
from cdc_pipeline_tests.histories.upstream import Ddl
from cdc_pipeline_tests.support.lakes.kills import ingested_with_kills

_KEY = re.compile(r", (?:PRIMARY|UNIQUE) KEY [^(]*\([^)]*\)")


class WithoutKeys(IngestedHistories):
    """Definitions and messages without keys. The pipeline's settings declare them."""

    @property
    def keys(self) -> dict[str, tuple[str, ...]]:
        tables = [
            event.statement.table
            for history in self.histories.histories
            for event in history.upstream.events
            if isinstance(event, Ddl) and isinstance(event.statement, CreateTable)
        ]
        return {".".join(table.full_name): table.key for table in tables if table.key}

    def lines(self) -> list[list[str]]:
        return [[_without_key(line) for line in lines] for lines in super().lines()]

    def ingest_file(self) -> None:
        ingested_with_kills(self.spark, self.paths, self.captures, self.killer, keys=self.keys)


def _without_key(line: str) -> str:
    record = json.loads(line)
    message = json.loads(record["payload"])
    if message["isDdl"]:
        message["sql"] = _KEY.sub("", message["sql"])
    elif message["pkNames"]:
        message["pkNames"] = []
    return json.dumps(record | {"payload": json.dumps(message, ensure_ascii=False)})


def test_mirrors_equal_the_model(spark: SparkSession, tmp_path: Path) -> None:
    histories = histories_of(("only_updated", "delete_keys_only"), SEED, 2, 12, ddl=False)
    ingested = WithoutKeys(spark, tmp_path, histories, RandomKiller(SEED, 0.02))
    ingested.ingest_files()
    assert ingested.wrong == [], histories
    assert len(ingested.keys) > 3
    # no definition of a table has a key
    entries = published_cut(Lake(spark, ingested.paths)).mirrors
    assert {f"{entry['database']}.{entry['table']}" for entry in entries} >= set(ingested.keys)
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
