"""A cut that was begun is finished as it was planned, whatever has changed before the next run: settings, code, and who is
first."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from cdc_pipeline.lake import folder_moves
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts import cut_maker
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.execution import mirror_folders
from cdc_pipeline.mirrors.planning.planner import Planner
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mirrors.settings.ddl_policy import DdlPolicy
from cdc_pipeline.mirrors.settings.selection import TableSelection
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.kills import Killed
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, put, update
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.masks import SALT, hashed, texts
from cdc_pipeline_tests.support.messages import ddl, row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.apart


T_TYPES = {"id": "int", "at": "timestamp"}


def _bag(step: int, *values: str) -> list[tuple[str, int]]:
    return [put("bag", step, "1", value) for value in values]


@contextmanager
def _no_planning() -> Iterator[None]:
    """As if another version would plan otherwise: it must not be asked."""

    def never(*_: object, **__: object) -> None:
        raise AssertionError("a begun cut is not planned again")

    with patch.object(Planner, "plan", never):
        yield


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path / "one")


@pytest.mark.parametrize("first", [1, *(pytest.param(number, marks=pytest.mark.long) for number in (2, 3, 4))])
def test_policy_keys_zone_selection_and_code_may_change(stream: Stream, tmp_path: Path, first: int) -> None:
    """Killed at every fourth commit of the mirrors from the first one on, and finished under settings by which all steps
    would be others."""
    stream.tell(
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
    moment = {"id": "7", "at": "2026-11-21 08:00:00"}
    stream.tell(
        20,
        # held by the later policy: then no step of it or after it would have its index
        change("DROP TABLE gone", 10),
        change("ALTER TABLE bag ADD n INT DEFAULT 3", 11),
        *_bag(12, "b", "b"),
        update("keyed", 12, ("1", "x"), ("1", "y")),
        (row("INSERT", "at", 12, moment, types=T_TYPES, key=["id"]), 1),
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
        told = stream.begun_again(tmp_path / f"killed-{number}")
        if not told.killed(number, **before):
            assert number > 12
            break
        with _no_planning(), patch.object(cut_maker, "next_window", lambda *_, **__: None):
            said = told.run(**after)
        assert said[0] == "finishing cut 2, which an earlier run began"
        assert told.rows("made") == [(1, "a", 3), (1, "a", 3), (1, "b", None), (1, "b", None)], number
        assert told.rows("bag") == [(1, "m"), (1, "m"), (2, "m2")]
        assert told.rows("keyed") == [(1, "y")]
        assert [str(found[1]) for found in told.rows("at")] == ["2026-11-21 00:00:00"]
        assert not Path(told.paths.mirror(TableName("db", "gone"))).exists()
        last = told.cuts()[-1]
        assert (last["cut_id"], last["time_zone"], last["keys"]) == (2, "Asia/Shanghai", {"db.keyed": ["id"]})
        assert (last["ddl_policy"], last["held"]) == (DdlPolicy().to_json(), [])
        assert lake_balance(told.spark, told.paths).is_balanced
    # the next cut is made with what is declared now
    told.tell(30, put("bag", 25, "2", "m2"), change("TRUNCATE TABLE made", 26))
    told.run(**after)
    last = told.cuts()[-1]
    assert [(held["table"], held["sql"]) for held in last["held"]] == [("made", "TRUNCATE TABLE made")]
    assert "at" not in {mirror["table"] for mirror in last["mirrors"]}
    assert lake_balance(told.spark, told.paths).is_balanced


def test_a_masked_default_is_no_part_of_what_is_stored(stream: Stream) -> None:
    """It is read in the statement again."""
    rules = ColumnRules(masks=(("db.*", (("mail", "hash"),)),), salt=SALT)
    stream.tell(2, create("p", 1), put("p", 2, "1", "a"))
    stream.run(columns=rules)
    stream.tell(
        20,
        change("ALTER TABLE p ADD mail VARCHAR(40) DEFAULT 'clear-mail', ADD n INT DEFAULT 5", 10),
        put("p", 11, "2", "b"),
    )
    assert stream.killed(0, columns=rules)
    plans = Path(stream.paths.table("cut_plans"))
    assert [str(path) for path in plans.rglob("*") if path.is_file() and "clear-" in texts(path)] == []
    assert any("ChangeColumns" in texts(path) for path in plans.rglob("*.parquet"))
    with _no_planning():
        stream.run(columns=rules)
    assert stream.rows("p") == [(1, "a", hashed("clear-mail", SALT), 5), (2, "b", None, None)]


@pytest.mark.core(12)
def test_what_was_begun_by_another_run_first_is_carried_out(stream: Stream) -> None:
    """Two runs without a lock: the second looks before the first has written its plan, and has a batch more in its own."""
    stream.tell(2, create("a", 1), create("b", 1, KEYLESS))
    stream.run()
    stream.tell(10, put("a", 5, "1", "x"), put("b", 5, "1", "x"))
    assert stream.killed(1)
    stream.tell(20, put("a", 15, "1", "y"), put("b", 15, "1", "x"))
    with patch.object(cut_maker, "load_begun_cut", lambda *_: None):
        said = stream.run()
    assert "another run began cut 2 first: executing that run's plan" in said
    stream.run()
    assert [(found["cut_id"], found["last_batch"]) for found in stream.cuts()] == [(1, 1), (2, 2), (3, 3)]
    assert (stream.rows("a"), stream.rows("b")) == ([(1, "y")], [(1, "x"), (1, "x")])
    assert lake_balance(stream.spark, stream.paths).is_balanced


def test_more_commits_than_a_hundred_in_one_step(stream: Stream) -> None:
    """A statement that adds columns, each generated of the one before, needs a commit for each of them."""
    stream.tell(2, create("wide", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, c0 INT)"))
    stream.run()
    columns = ", ".join(f"ADD c{number} INT AS (c{number - 1} + 1) STORED" for number in range(1, 99))
    types = {"id": "int", "c0": "int"}
    rows = [(row("INSERT", "wide", 3, {"id": "1", "c0": "10"}, types=types, key=["id"]), 1)]
    stream.tell(
        20, *rows, change(f"ALTER TABLE wide {columns}", 10), change("ALTER TABLE wide ADD z INT DEFAULT 9", 11)
    )
    stream.run()
    assert stream.rows("wide") == [(1, *range(10, 109), 9)]


def test_a_finding_and_what_was_found_are_there_together(stream: Stream, tmp_path: Path) -> None:
    """Rows that go without a message, some of them perhaps not: killed at each commit, the mirror says so all the same."""
    ranges = (
        "PARTITION BY RANGE (YEAR(d)) (PARTITION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN MAXVALUE)"
    )
    stream.tell(
        2,
        create("narrow", 1),
        put("narrow", 2, "1", "no number"),
        put("narrow", 2, "2", "12"),
        create("days", 1, f"CREATE TABLE `{{}}` (id INT, d DATETIME, PRIMARY KEY (id, d)) {ranges}"),
        (ddl("ALTER TABLE days COMMENT 'x'", 1), 0),
    )
    stream.run()
    stream.tell(
        20, change("ALTER TABLE narrow MODIFY v INT", 10), change("ALTER TABLE narrow ADD w INT AS (v + 1)", 11)
    )
    for number in range(100):
        told = stream.begun_again(tmp_path / f"killed-{number}")
        through = not told.killed(number)
        told.run()
        mirrors = {mirror["table"]: mirror["gaps"] for mirror in told.cuts()[-1]["mirrors"]}
        assert any(
            "1 value(s) may differ from upstream after the conversion to int" in gap for gap in mirrors["narrow"]
        ), (number, mirrors)
        if through:
            assert number > 2
            break


def test_what_was_kept_out_is_counted_by_whichever_run_finishes(stream: Stream) -> None:
    stream.tell(2, create("a", 1), create("b", 1))
    stream.run()
    stream.tell(10, put("a", 5, "no number", "x"), put("a", 5, "1", "x"), put("b", 5, "1", "x"))
    number = 0
    while stream.begun_again(stream.folder.parent / f"killed-{number}").killed(number):
        told = Stream(stream.spark, stream.folder.parent / f"killed-{number}", stream.topic, stream.slices)
        told.run()
        last = told.cuts()[-1]
        assert (last["changes"], last["applied"], last["rejected"]) == (3, 2, 1), number
        number += 1
    assert number > 2


def test_a_move_that_died_in_the_middle(stream: Stream) -> None:
    """Of a file system that copies and deletes: half of the mirror's files are under the new name."""
    stream.tell(2, create("a", 1), put("a", 2, "1", "x"))
    stream.run()
    stream.tell(20, change("RENAME TABLE a TO b", 10), put("b", 11, "2", "y"))

    def half(spark: SparkSession, source: str, target: str, notes: str) -> None:
        folder_moves._record_move(spark, source, target, notes)
        shutil.copytree(Path(source) / "_delta_log", Path(target) / "_delta_log")
        raise Killed

    with patch.object(mirror_folders, "move_folder", half), pytest.raises(Killed):
        stream.run()
    said = stream.run()
    assert f"finished the move of a folder to {stream.paths.mirror(TableName('db', 'b'))}, at which a run died" in said
    assert stream.rows("b") == [(1, "x"), (2, "y")]
    assert published_cut(stream.spark, stream.paths).names == {TableName("db", "b")}
