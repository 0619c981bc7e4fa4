"""Tables whose key only `keys` of a pipeline's file tells, with images that lack columns, against the model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline_tests.histories.ddl import CreateTable
from cdc_pipeline_tests.histories.told import SEED, RandomKiller, Told, histories_of
from cdc_pipeline_tests.histories.upstream import Ddl
from cdc_pipeline_tests.support.lakes.kills import ingested_with_kills

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_KEY = re.compile(r", (?:PRIMARY|UNIQUE) KEY [^(]*\([^)]*\)")


class ToldWithoutKeys(Told):
    """Neither definitions nor messages name a key: it is declared."""

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

    def take_in(self) -> None:
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
    told = ToldWithoutKeys(spark, tmp_path, histories, RandomKiller(SEED, 0.02))
    told.tell()
    assert told.wrong == [], histories
    assert len(told.keys) > 3
    # the tables' definitions name none
    entries = published_cut(spark, told.paths).mirrors
    assert {f"{entry['database']}.{entry['table']}" for entry in entries} >= set(told.keys)
    assert lake_balance(spark, told.paths).is_balanced
