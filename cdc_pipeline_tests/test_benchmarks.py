"""The generated batches of benchmarks contain what they claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.batches import BenchmarkLake
from benchmarks.tables import changes, creation
from cdc_pipeline.mysql.model.table import TableName

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_TABLES, _EVENTS = 2, 20


def test_a_batch_of_each_benchmark_has_the_changes_it_counts(spark: SparkSession, tmp_path: Path) -> None:
    lake = BenchmarkLake(spark, tmp_path / "lake")
    costs = [
        lake.run(creation(spark, _TABLES, _EVENTS), _EVENTS),
        lake.run(changes(spark, 2, _TABLES, _EVENTS), _EVENTS),
    ]
    assert all(cost.cpu > 0 and 0 < cost.cut < cost.total for cost in costs)
    wanted = [dict.fromkeys(range(_EVENTS // _TABLES), 1) for _ in range(_TABLES)]
    for number in range(_EVENTS):
        rows, key = wanted[number % _TABLES], number // _TABLES
        kind = (key + 3 * 2) % 10
        if kind < 7:
            rows[key] = 2
        elif kind < 9:
            rows[key + _EVENTS * 2] = 2
        else:
            del rows[key]
    for number, rows in enumerate(wanted):
        mirror = spark.read.format("delta").load(lake.paths.mirror(TableName("db", f"t_{number}")))
        found = {row["id"]: (row["v"], row["n"]) for row in mirror.collect()}
        assert found == {key: (f"value of {key} in batch {batch}", batch) for key, batch in rows.items()}
