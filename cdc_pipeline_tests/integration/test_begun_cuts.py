"""An unfinished cut is finished as planned, even if settings or code change before the next run, or another run planned it
first."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.cuts import cut_maker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import POLICY_JSON, DdlPolicy
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, put, update
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.masks import SALT, hashed, texts
from cdc_pipeline_tests.support.messages import ddl, row

pytestmark = pytest.mark.apart


T_TYPES = {"id": "int", "at": "timestamp"}


def _bag(step: int, *values: str) -> list[tuple[str, int]]:
    return [put("bag", step, "1", value) for value in values]


@contextmanager
def _no_planning() -> Iterator[None]:
    """Fails if anything is planned, as another version could plan differently."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("an unfinished cut must not be planned again")

    with patch.object(Planner, "plan", fail):
        yield


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path / "one")


@pytest.mark.parametrize("first", [1, *(pytest.param(number, marks=pytest.mark.long) for number in (2, 3, 4))])
def test_policy_keys_zone_selection_and_code_may_change(stream: Stream, tmp_path: Path, first: int) -> None:
    """Kills the run at every fourth commit of the mirrors from `first` on, and finishes it under other settings.

    The new settings would change all steps.
    """
    stream.write_slice(
        2,
        create("gone", 1),
        put("gone", 2, "1", "g"),
        create("bag", 1, KEYLESS),
        *_bag(2, "a", "a"),
        create("keyed", 1, KEYLESS),
        put("keyed", 2, "1", "x"),
        create("at", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, at TIMESTAMP NULL)"),
    )
    before = {"keys": {"db.keyed": ("id",)}, "time_zone": "Asia/Shanghai"}
    stream.run(**before)
    values = {"id": "7", "at": "2026-11-21 08:00:00"}
    stream.write_slice(
        20,
        # the later policy would hold this statement, and so shift the index of all later steps
        change("DROP TABLE gone", 10),
        change("ALTER TABLE bag ADD n INT DEFAULT 3", 11),
        *_bag(12, "b", "b"),
        update("keyed", 12, ("1", "x"), ("1", "y")),
        (row("INSERT", "at", 12, values, types=T_TYPES, key=["id"]), 1),
        create("made", 13, KEYLESS),
        put("made", 14, "1", "m"),
        put("made", 14, "1", "m"),
        change("RENAME TABLE made TO moved, bag TO made, moved TO bag", 15),
        put("bag", 16, "2", "m2"),
    )
    after = {
        "policy": DdlPolicy("hold"),
        "time_zone": "UTC",
        "keys": {"db.bag": ("id",)},
        "selection": TableSelection(exclude=("db.a*",)),
    }
    for number in range(first, 100, 4):
        copy = stream.begun_again(tmp_path / f"killed-{number}")
        if not copy.killed(number, **before):
            assert number > 12
            break
        with _no_planning(), patch.object(cut_maker, "next_window", lambda *_, **__: None):
            lines = copy.run(**after)
        assert lines[0] == "finishing cut 2, which an earlier run began"
        assert copy.rows("made") == [(1, "a", 3), (1, "a", 3), (1, "b", None), (1, "b", None)], number
        assert copy.rows("bag") == [(1, "m"), (1, "m"), (2, "m2")]
        assert copy.rows("keyed") == [(1, "y")]
        assert [str(found[1]) for found in copy.rows("at")] == ["2026-11-21 00:00:00"]
        assert not Path(copy.paths.mirror(TableName("db", "gone"))).exists()
        last = copy.cuts()[-1]
        assert (last["cut_id"], last["time_zone"], last["keys"]) == (2, "Asia/Shanghai", {"db.keyed": ["id"]})
        assert (last["ddl_policy"], last["held"]) == (POLICY_JSON.to_json(DdlPolicy()), [])
        assert lake_balance(Lake(copy.spark, copy.paths)).is_balanced
    # the next cut uses the current settings
    copy.write_slice(30, put("bag", 25, "2", "m2"), change("TRUNCATE TABLE made", 26))
    copy.run(**after)
    last = copy.cuts()[-1]
    assert [held["table"] for held in last["held"]] == ["made"]
    assert "at" not in {mirror["table"] for mirror in last["mirrors"]}
    assert lake_balance(Lake(copy.spark, copy.paths)).is_balanced


def test_a_masked_default_of_a_resumed_cut(stream: Stream) -> None:
    rules = ColumnRules(masks=(("db.*", (("mail", "hash"),)),), salt=SALT)
    stream.write_slice(2, create("p", 1), put("p", 2, "1", "a"))
    stream.run(columns=rules)
    stream.write_slice(
        20,
        change("ALTER TABLE p ADD mail VARCHAR(40) DEFAULT 'clear-mail', ADD n INT DEFAULT 5", 10),
        put("p", 11, "2", "b"),
    )
    assert stream.killed(0, columns=rules)
    plans = Path(stream.paths.table("cut_plans"))
    assert any("ChangeColumns" in texts(path) for path in plans.rglob("*.parquet"))
    assert [str(path) for path in plans.rglob("*") if path.is_file() and SALT in texts(path)] == []
    with _no_planning():
        stream.run(columns=rules)
    assert stream.rows("p") == [(1, "a", hashed("clear-mail", SALT), 5), (2, "b", None, None)]


@pytest.mark.core(12)
def test_a_begun_cut_is_finished_as_planned(stream: Stream) -> None:
    """Two runs without a lock: the second one reads before the first has written its plan, and has a batch more."""
    stream.write_slice(2, create("a", 1), create("b", 1, KEYLESS))
    stream.run()
    stream.write_slice(10, put("a", 5, "1", "x"), put("b", 5, "1", "x"))
    assert stream.killed(1)
    stream.write_slice(20, put("a", 15, "1", "y"), put("b", 15, "1", "x"))
    with patch.object(cut_maker, "load_begun_cut", lambda *_: None):
        lines = stream.run()
    assert "another run began cut 2 first: executing that run's plan" in lines
    stream.run()
    assert [(found["cut_id"], found["last_batch"]) for found in stream.cuts()] == [(1, 1), (2, 2), (3, 3)]
    assert (stream.rows("a"), stream.rows("b")) == ([(1, "y")], [(1, "x"), (1, "x")])
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced


def test_a_step_of_more_than_a_hundred_commits(stream: Stream) -> None:
    """A statement adds columns, each generated from the one before, so each column needs its own commit."""
    stream.write_slice(2, create("wide", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, c0 INT)"))
    stream.run()
    columns = ", ".join(f"ADD c{number} INT AS (c{number - 1} + 1) STORED" for number in range(1, 99))
    types = {"id": "int", "c0": "int"}
    rows = [(row("INSERT", "wide", 3, {"id": "1", "c0": "10"}, types=types, key=["id"]), 1)]
    stream.write_slice(
        20, *rows, change(f"ALTER TABLE wide {columns}", 10), change("ALTER TABLE wide ADD z INT DEFAULT 9", 11)
    )
    stream.run()
    assert stream.rows("wide") == [(1, *range(10, 109), 9)]


def test_a_gap_is_committed_with_its_cause(stream: Stream, tmp_path: Path) -> None:
    """Rows move without a message, and some may not have moved. After a kill at any commit, the mirror has that gap."""
    ranges = (
        "PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    )
    stream.write_slice(
        2,
        create("narrow", 1),
        put("narrow", 2, "1", "no number"),
        put("narrow", 2, "2", "12"),
        create("days", 1, f"CREATE TABLE `{{}}` (id INT, d DATETIME, PRIMARY KEY (id, d)) {ranges}"),
        (ddl("ALTER TABLE days COMMENT 'x'", 1), 0),
    )
    stream.run()
    stream.write_slice(
        20, change("ALTER TABLE narrow MODIFY v INT", 10), change("ALTER TABLE narrow ADD w INT AS (v + 1)", 11)
    )
    for number in range(100):
        copy = stream.begun_again(tmp_path / f"killed-{number}")
        through = not copy.killed(number)
        copy.run()
        mirrors = {mirror["table"]: mirror["gaps"] for mirror in copy.cuts()[-1]["mirrors"]}
        # the whole text: a gap quotes no value
        assert "column v: 1 value(s) may differ from upstream after the conversion to int" in mirrors["narrow"], (
            number,
            mirrors,
        )
        if through:
            assert number > 2
            break


def test_excluded_changes_are_counted_by_the_run_that_finishes(stream: Stream) -> None:
    stream.write_slice(2, create("a", 1), create("b", 1))
    stream.run()
    stream.write_slice(10, put("a", 5, "no number", "x"), put("a", 5, "1", "x"), put("b", 5, "1", "x"))
    number = 0
    while stream.begun_again(stream.folder.parent / f"killed-{number}").killed(number):
        copy = Stream(stream.spark, stream.folder.parent / f"killed-{number}", stream.topic, stream.slices)
        copy.run()
        last = copy.cuts()[-1]
        assert (last["changes"], last["applied"], last["rejected"]) == (3, 2, 1), number
        number += 1
    assert number > 2
