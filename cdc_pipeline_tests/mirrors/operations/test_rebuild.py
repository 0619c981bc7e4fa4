"""A rebuild that died before it published: the next one publishes what it had replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from delta.tables import DeltaTable

import cdc_pipeline
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations import rebuild
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.seen import Rows, seen
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, create, put
from cdc_pipeline_tests.support.lakes.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    stream = Stream(spark, tmp_path / "one")
    stream.write_slice(10, create("t", 1), create("bag", 1, KEYLESS), put("t", 5, "1", "a"), put("bag", 5, "1", "x"))
    stream.run()
    return stream


def _rebuilt(stream: Stream, patterns: Sequence[str]) -> tuple[list[str], int | None]:
    """The tables that differed, and the published cut."""
    maker = CutMaker(Lake(stream.spark, stream.paths), "rebuild", "UTC", 2, lambda _: None)
    report = Rebuilder(maker).rebuild(patterns)
    return [table.table for table in report.tables if not table.equal], report.cut_id


def _published(stream: Stream) -> Rows:
    with cdc_pipeline.read_cut(stream.spark, stream.paths.root, "shop") as tables:
        return seen(tables)


@pytest.mark.parametrize("patterns", [(), ("db.t",)])
def test_replaced_mirrors_are_published_by_the_next_rebuild(stream: Stream, patterns: Sequence[str]) -> None:
    path = stream.paths.mirror(TableName("db", "t"))
    # a newer version with equal rows, such as that of OPTIMIZE: nothing to publish
    stream.spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('of.the' = 'test')")
    assert _rebuilt(stream, patterns) == ([], None)
    # the same number of rows, and no gap
    DeltaTable.forPath(stream.spark, path).update("id = 1", {"v": "'by hand'"})
    stream.write_slice(20, put("t", 15, "2", "b"))
    stream.run()
    assert _published(stream)["t"] == [(1, "by hand"), (2, "b")]
    with patch.object(rebuild, "publish", side_effect=RuntimeError("stopped")), pytest.raises(RuntimeError):
        _rebuilt(stream, patterns)
    assert _published(stream)["t"] == [(1, "by hand"), (2, "b")]
    assert _rebuilt(stream, patterns) == ([], 3)
    assert _published(stream)["t"] == [(1, "a"), (2, "b")]
    assert _rebuilt(stream, patterns) == ([], None)


def test_cuts_that_do_not_balance_are_counted_again(stream: Stream) -> None:
    lake = Lake(stream.spark, stream.paths)
    DeltaTable.forPath(stream.spark, stream.paths.table("consistent_cuts")).update(set={"changes": "changes + 1"})
    assert not lake_balance(lake).is_balanced
    assert _rebuilt(stream, ()) == ([], 2)
    assert lake_balance(lake).is_balanced
    assert _rebuilt(stream, ()) == ([], None)
