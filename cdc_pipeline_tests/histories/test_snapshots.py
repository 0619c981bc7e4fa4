"""An export of a random moment and the changes after it equal the whole: histories whose pipeline adopts an export.

The streams have everything, or only what their changefeeds sent from a moment before the export on. The export is adopted
before or after the mirrors have passed it. Runs are killed at random commits. To run other histories:
CDC_HISTORIES=40 CDC_HISTORY_SEED=7000 make test-all TEST_FLAGS="-k many_snapshots".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.snapshots.export import FileReading, open_export
from cdc_pipeline_tests.histories.choices import Seeded
from cdc_pipeline_tests.histories.exported import Moment, is_exportable, write_export
from cdc_pipeline_tests.histories.ingested import SEED, RandomKiller
from cdc_pipeline_tests.histories.ingested_snapshots import SnapshotHistories
from cdc_pipeline_tests.histories.setups import SETUPS, history_of_setup
from cdc_pipeline_tests.histories.shapes import Content, Table
from cdc_pipeline_tests.histories.snapshots import with_snapshot
from cdc_pipeline_tests.histories.strategies import history_of_seed
from cdc_pipeline_tests.histories.upstream import END_TSO

_PREFIXES = ("h", "t")
"""The topics sort before and after `snapshot:`, the topic of an export."""


def _ingested(
    spark: SparkSession,
    folder: Path,
    setup: str,
    seed: int,
    count: int,
    *,
    slices: int = 3,
    transactions: int = 15,
    late: bool | None = None,
) -> SnapshotHistories:
    """Histories of successive seeds in one lake, with one export of all."""
    parts = [
        history_of_setup(
            setup,
            seed + number,
            number,
            slices=slices,
            transactions=transactions,
            prefix=f"{_PREFIXES[number % 2]}{seed + number}",
            # the model does not say yet what an export and a binlog that is played again after it make together
            replayed=False,
        )
        for number in range(count)
    ]
    histories, snapshot = with_snapshot(parts, seed, late=late)
    print(f"{setup} {seed}: {snapshot!r}", flush=True)
    ingested = SnapshotHistories(spark, folder, histories, snapshot, RandomKiller(seed, 0.01))
    ingested.ingest_files()
    return ingested


def _differences(ingested: SnapshotHistories) -> list[str]:
    found = [*ingested.wrong, *ingested.unexpected_gaps(), *ingested.rebuild_differences()]
    if not lake_balance(Lake(ingested.spark, ingested.paths)).is_balanced:
        found.append("the counts of the cuts do not balance")
    return found


def _report(ingested: SnapshotHistories, counted: Callable[[str, int], None]) -> None:
    starts, count = ingested.snapshot.starts, len(ingested.histories.histories)
    counted("histories with an export compared", count)
    counted("histories whose mirrors had passed the export", count * ingested.was_passed)
    counted("histories whose changefeeds start late", sum(start is not None for start in starts))
    counted("exports adopted while a cut was begun", ingested.adopted_in_begun_cuts)
    counted("tables compared", len(ingested.compared_tables))
    counted("tables in doubt", len(ingested.doubts) + len(ingested.snapshot.unsure))
    counted("runs stopped at a commit or a move", ingested.killer.kills)


@pytest.mark.parametrize(
    ("setup", "seed", "late"),
    [
        ("ticdc_extension", SEED + 2, True),
        ("ticdc_extension", SEED + 7, False),
        ("canal_one_partition", SEED + 7, True),
    ],
)
def test_an_export_and_the_rest_equal_the_whole(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str, seed: int, late: bool
) -> None:
    ingested = _ingested(spark, tmp_path, setup, seed, 1, slices=2, transactions=5, late=late)
    _report(ingested, counted)
    assert _differences(ingested) == [], ingested.histories


# CDC_HISTORIES histories of each set-up, four per lake.
_A_LAKE = 4
_FIRST = range(SEED + 6000, SEED + 6000 + int(os.environ.get("CDC_HISTORIES", "12")), _A_LAKE)


@pytest.mark.long
@pytest.mark.parametrize("first", _FIRST)
@pytest.mark.parametrize("setup", SETUPS)
def test_many_snapshots(
    spark: SparkSession, tmp_path: Path, counted: Callable[[str, int], None], setup: str, first: int
) -> None:
    ingested = _ingested(spark, tmp_path, setup, first, _A_LAKE)
    _report(ingested, counted)
    assert _differences(ingested) == [], ingested.histories


# ---- the exports themselves


def _read(folder: Path) -> dict[tuple[str, str], tuple[tuple[str, ...], list[tuple[str | None, ...]]]]:
    export = open_export("dumpling", str(folder))
    found = {}
    for table in export.tables:
        rows: list[tuple[str | None, ...]] = []
        for file in table.files:
            for batch in FileReading(export.files, table, file):
                rows += [tuple(row.values()) for row in batch.texts.to_pylist()]
        found[table.name.database, table.name.table] = (table.schema.column_names, rows)
    return found


@pytest.mark.parametrize("mode", ["extension", "canal"])
def test_exports_have_the_tables_of_the_model(mode: str, tmp_path: Path) -> None:
    tidb, values = mode == "extension", 0
    for seed in range(12):
        history = history_of_seed(seed, transactions=12, mode=mode)
        tables: dict[Table, Content] = {
            table: content
            for table, content in history.upstream.tables_at(END_TSO).items()
            if is_exportable(table, tidb=tidb)
        }
        write_export(tmp_path / str(seed), tables, Moment(0, 1, 7 if tidb else None), Seeded(seed))
        found = _read(tmp_path / str(seed))
        assert found.keys() == {table.full_name for table in tables}
        for table, content in tables.items():
            columns, rows = found[table.full_name]
            assert columns == table.names
            expected = content.expected()[1]
            assert sorted(rows, key=str) == sorted(map(tuple, expected), key=str), (seed, table)
            values += sum(map(len, rows))
    assert values > 500
