"""A table that fails in several runs is quarantined, and the others continue. A rebuild of it ends the quarantine."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.checks.cuts import no_gaps_result
from cdc_pipeline.errors import LakeError, TransientError
from cdc_pipeline.lake.control_tables import read_rows
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.quarantine import FAILURES
from cdc_pipeline.mirrors.cuts.stored_plan import is_begun
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.merge import apply_rows
from cdc_pipeline.mirrors.merge.apply_rows import RowMerger
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules, MaskSaltError
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.kills import Killed, Killer, ingested_with_kills
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, TYPES, change, create, put, update
from cdc_pipeline_tests.support.lakes.story_lake import as_a_new_process
from cdc_pipeline_tests.support.lakes.stream import Stream
from cdc_pipeline_tests.support.masks import SALT
from cdc_pipeline_tests.support.messages import row


class BrokenError(Exception):
    """A fault of the package in the rows of one table."""


@contextmanager
def broken(*tables: str, error: type[BaseException] = BrokenError) -> Iterator[None]:
    """Makes each merge into the mirrors of these names fail."""
    apply = RowMerger.apply

    def fails(self: RowMerger, context: Any, step: Any, *others: Any) -> Any:
        if step.state.name.table in tables:
            raise error(f"rows of {step.state.name.table} cannot be merged")
        return apply(self, context, step, *others)

    with patch.object(apply_rows.RowMerger, "apply", fails):
        yield


@pytest.fixture(scope="module")
def first_cut(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stream:
    """The initial lake of all tests. Copy it."""
    return _first_cut(Stream(spark, tmp_path_factory.mktemp("first") / "one"))


def _first_cut(found: Stream) -> Stream:
    names = ("a", "b", "x")
    found.write_slice(2, *(create(name, 1) for name in names), create("bag", 1, KEYLESS), put("bag", 2, "1", "q"))
    found.run()
    return found


@pytest.fixture
def stream(first_cut: Stream, tmp_path: Path) -> Stream:
    return first_cut.begun_again(tmp_path / "one")


def _maker(stream: Stream, **settings: Any) -> CutMaker:
    return CutMaker(Lake(stream.spark, stream.paths), "rebuild", "UTC", 2, lambda line: None, **settings)


def _recorded_errors(stream: Stream, table: str) -> list[str]:
    rows = read_rows(Lake(stream.spark, stream.paths), FAILURES, ("table", "=", table))
    return [row["error"] for row in rows]


def _quarantined(stream: Stream) -> dict[str, tuple[str, int]]:
    return {held["table"]: (held["error"], held["rows"]) for held in stream.cuts()[-1]["held"]}


@pytest.mark.core(11)
def test_a_table_is_quarantined_and_rebuilt(stream: Stream, counted: Any) -> None:
    """A file of its rows is missing, so each run fails at this table only."""
    bag = Path(stream.paths.mirror(TableName("db", "bag")))
    for file in bag.glob("*.parquet"):
        file.unlink()
    as_a_new_process(stream.spark)
    stream.write_slice(
        10, *(put(name, 5, "1", "one") for name in ("a", "b", "bag")), change("ALTER TABLE bag ADD n INT", 6)
    )
    stream.topic.send(row("DELETE", "bag", 4, {"id": "1", "v": "q"}, key=["id"]), 1).write(
        stream.folder / "captures", "1b.jsonl"
    )
    for number in range(2):
        with pytest.raises(Exception, match=r"(?s)parquet") as caught:
            stream.run()
        assert not isinstance(caught.value, AssertionError)
        # independent tables are already up to date
        assert (stream.rows("a"), stream.rows("b")) == ([(1, "one")], [(1, "one")])
        assert len(_recorded_errors(stream, "bag")) == number + 1
        assert published_cut(Lake(stream.spark, stream.paths)).cut_id == 1
    lines = stream.run()
    assert any(
        line.startswith("db.bag is quarantined: ApplyRows of db.bag failed 3 times in cut 2: ") for line in lines
    )
    assert published_cut(Lake(stream.spark, stream.paths)).cut_id == 2
    assert _quarantined(stream)["bag"][1] == 2
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced

    # its changes wait, and all other tables continue
    late = row("INSERT", "bag", 15, {"id": "8", "v": "late", "n": "4"}, types={**TYPES, "n": "int"})
    stream.write_slice(20, put("a", 15, "1", "two"), (late, 1), change("ALTER TABLE bag ADD m INT", 16))
    report_lines = stream.run()
    assert not any("quarantined" in line for line in report_lines)
    assert stream.rows("a") == [(1, "two")]
    assert _quarantined(stream)["bag"][1] == 3
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced
    history = stream.spark.read.format("delta").load(stream.paths.table("ddl_history"))
    assert [found["status"] for found in history.where("sql LIKE 'ALTER%'").orderBy("commit_ts").collect()] == [
        "held"
    ] * 2
    report = _maker(stream).advance()
    result = no_gaps_result(report, dg.AssetKey(["shop", "consistent_cuts"]))
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "quarantined: ApplyRows of db.bag failed 3 times" in str(result.metadata["db.bag"])
    assert "then run shop_rebuild with their names in tables" in str(result.description)

    assert Rebuilder(_maker(stream)).rebuild(["db.bag"]).cut_id == 4
    assert _quarantined(stream) == {}
    assert stream.rows("bag") == [(1, "one", None, None), (8, "late", 4, None)]
    assert {mirror["table"]: mirror["gaps"] for mirror in stream.cuts()[-1]["mirrors"]}["bag"] == []
    assert {found["status"] for found in history.where("sql LIKE 'ALTER%'").collect()} == {"applied"}
    stream.write_slice(30, put("bag", 25, "9", "on"))
    stream.run()
    assert (len(stream.rows("bag")), lake_balance(Lake(stream.spark, stream.paths)).is_balanced) == (3, True)
    counted("tables quarantined and rebuilt", 1)


def test_tables_tied_to_it_by_a_rename_wait_too(stream: Stream) -> None:
    stream.write_slice(
        10,
        put("a", 5, "1", "one"),
        put("b", 5, "1", "one"),
        change("RENAME TABLE a TO y, b TO a, y TO b", 6),
        put("a", 7, "2", "b's"),
        put("x", 7, "1", "free"),
    )
    with broken("a"):
        for _ in range(2):
            with pytest.raises(BrokenError, match="rows of a cannot be merged"):
                stream.run()
        lines = stream.run()
    assert sorted(_quarantined(stream)) == ["a", "b", "y"]
    assert stream.rows("x") == [(1, "free")]
    assert sum("is quarantined" in line for line in lines) == 3
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced
    assert Rebuilder(_maker(stream)).rebuild(["db.a"]).cut_id == 3
    assert (_quarantined(stream), stream.rows("a"), stream.rows("b")) == ({}, [(1, "one"), (2, "b's")], [(1, "one")])
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced


def test_a_table_that_cannot_be_created_and_a_rebuild_of_all(stream: Stream) -> None:
    """It has no mirror. A rebuild of all tables tries again, and leaves it quarantined if it fails."""
    stream.write_slice(10, create("new", 5), put("new", 6, "1", "n"), update("a", 6, ("1", "x"), ("1", "y")))
    with broken("new"):
        for _ in range(2):
            with pytest.raises(BrokenError):
                stream.run()
        stream.run()
        assert _quarantined(stream)["new"][1] == 1
        assert Rebuilder(_maker(stream)).rebuild().all_equal
        assert _quarantined(stream)["new"][1] == 1
        # a rebuild quarantines no further table
        with broken("a"), pytest.raises(BrokenError, match="rows of a"):
            Rebuilder(_maker(stream)).rebuild()
    assert Rebuilder(_maker(stream)).rebuild().cut_id is not None
    assert (_quarantined(stream), stream.rows("new")) == ({}, [(1, "n")])
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced


@pytest.mark.parametrize("error", [TransientError, OSError, MemoryError])
def test_errors_that_no_table_causes_quarantine_none(stream: Stream, error: type[Exception]) -> None:
    stream.write_slice(10, put("a", 5, "1", "one"), put("b", 5, "1", "one"))
    with broken("a", error=error):
        for _ in range(4):
            with pytest.raises(error):
                stream.run()
    assert _recorded_errors(stream, "a") == []
    stream.run()
    assert (_quarantined(stream), stream.rows("a"), stream.rows("b")) == ({}, [(1, "one")], [(1, "one")])


class NoMemoryError(Exception):
    """An error as of Java's memory."""

    def __str__(self) -> str:
        return "java.lang.OutOfMemoryError: Java heap space"


@pytest.mark.parametrize("error", [Killed, NoMemoryError])
def test_a_table_whose_step_ends_the_process(stream: Stream, error: type[BaseException]) -> None:
    """Also a step that has run beside it, in the first run only, is not quarantined."""
    stream.write_slice(10, put("a", 5, "1", "one"), put("b", 5, "1", "one"), put("x", 5, "1", "one"))
    with broken("a", "b", error=error), pytest.raises(error):
        stream.run()
    with broken("a", error=error):
        for _ in range(2):
            with pytest.raises(error):
                stream.run()
        lines = stream.run()
    errors = _recorded_errors(stream, "a")
    assert errors == ["ProcessEndedError: the process or its JVM ended (step 0, version 0 of the mirror)"] * 3
    assert any("db.a is quarantined: ApplyRows of db.a failed 3 times in cut 2: Process" in line for line in lines)
    assert (sorted(_quarantined(stream)), stream.rows("b"), stream.rows("x")) == (["a"], [(1, "one")], [(1, "one")])
    assert lake_balance(Lake(stream.spark, stream.paths)).is_balanced
    assert Rebuilder(_maker(stream)).rebuild(["db.a"]).cut_id == 3
    assert (_quarantined(stream), stream.rows("a")) == ({}, [(1, "one")])


def test_ends_of_the_process_at_other_places_quarantine_none(stream: Stream) -> None:
    """A kill before each commit, most of them in the steps of one table."""
    columns = ", ".join(
        f"ADD COLUMN n{number} INT AS ({before})" for number, before in enumerate(("id", "n0", "n1", "n2"))
    )
    stream.write_slice(10, put("a", 5, "1", "one"), change(f"ALTER TABLE a {columns}", 6), put("a", 7, "2", "two"))
    assert ingested_with_kills(stream.spark, stream.paths, stream.folder / "captures", Killer()) > 8
    assert (_quarantined(stream), len(stream.rows("a"))) == ({}, 2)


def test_no_table_is_quarantined_if_all_fail(stream: Stream) -> None:
    stream.write_slice(10, *(put(name, 5, "1", "one") for name in ("a", "b", "x")))
    with broken("a", "b", "x"):
        for _ in range(4):
            with pytest.raises(BrokenError):
                stream.run()
    stream.run()
    assert (_quarantined(stream), stream.rows("x")) == ({}, [(1, "one")])


def test_an_unfinished_cut_does_not_block_a_rebuild(stream: Stream) -> None:
    """The table is quarantined at once, and rebuilt if it is among the selected ones."""
    stream.write_slice(10, put("a", 5, "1", "one"), put("b", 5, "1", "one"))
    with broken("b"), pytest.raises(BrokenError):
        stream.run()
    with broken("b"):
        assert Rebuilder(_maker(stream)).rebuild(["db.a"]).all_equal
    assert sorted(_quarantined(stream)) == ["b"]
    assert Rebuilder(_maker(stream)).rebuild(["db.b"]).cut_id == 3
    assert (_quarantined(stream), stream.rows("a"), stream.rows("b")) == ({}, [(1, "one")], [(1, "one")])


@pytest.mark.parametrize("first", [7, *(pytest.param(number, marks=pytest.mark.long) for number in range(7))])
@pytest.mark.parametrize("scheme", ["", "file:"], ids=["by name", "by id"])
def test_a_rebuild_abandons_a_cut_that_cannot_be_finished(stream: Stream, first: int, scheme: str) -> None:
    """Kills at every eighth commit or move from `first` on. The salt of the cut is lost. The rebuild first undoes what the
    cut moved, dropped and created."""
    masks: Any = (("db.*", (("mail", "hash"),)),)
    rules, others = (ColumnRules(masks=masks, salt=salt) for salt in (SALT, "another salt of the tests"))
    if scheme:
        stream = _first_cut(Stream(stream.spark, stream.folder.parent / "by-id", scheme=scheme))
    stream.write_slice(
        10,
        put("a", 5, "1", "one"),
        change("RENAME TABLE a TO c, b TO a, c TO b", 6),
        change("ALTER TABLE x ADD mail VARCHAR(20) DEFAULT 'm'", 6),
        change("DROP TABLE bag", 7),
        create("made", 7, KEYLESS),
        put("made", 8, "1", "m"),
    )
    number = first
    # a new folder each time, because Delta caches tables by path
    while (copy := stream.begun_again(stream.folder.parent / f"begun-{number}")).killed(number, columns=rules):
        number += 8
        with pytest.raises(MaskSaltError):
            copy.run(columns=others)
        with pytest.raises(MaskSaltError):
            Rebuilder(_maker(copy, columns=others)).rebuild(["db.a"])
        assert Rebuilder(_maker(copy, columns=others)).rebuild().cut_id == 2
        assert not is_begun(Lake(stream.spark, copy.paths), published_cut(Lake(stream.spark, copy.paths)))
        # upstream's state at the previous cut, and the changes since
        assert (copy.rows("bag"), copy.rows("a")) == ([(1, "q")], [])
        copy.run(columns=others)
        assert (copy.rows("b"), copy.rows("made"), copy.rows("x")) == ([(1, "one")], [(1, "m")], [])
        names = {str(name) for name in published_cut(Lake(stream.spark, copy.paths)).names}
        assert names == {"db.a", "db.b", "db.x", "db.made"}
        assert lake_balance(Lake(stream.spark, copy.paths)).is_balanced
    assert number > 12


def test_a_version_that_splits_rows_differently_is_reported(stream: Stream) -> None:
    """Rows that were planned for one step must not be applied in two steps, or in none."""
    stream.write_slice(10, put("bag", 5, "1", "one"), change("ALTER TABLE bag ADD n INT", 6), put("bag", 7, "2", "two"))
    assert stream.killed(2)
    from cdc_pipeline.mirrors.changes import cut_rows

    def all_before(changes: Any, events: Any, *others: Any) -> Any:
        return with_segments(changes, [dataclasses.replace(event, commit_ts=2**62) for event in events], *others)

    with_segments = cut_rows.with_segments
    with patch.object(cut_rows, "with_segments", all_before):
        for _ in range(2):
            with pytest.raises(LakeError, match=r"db\.bag: the resumed cut has . row changes, but . were planned"):
                stream.run()
    stream.run()
    assert (_quarantined(stream), stream.rows("bag")) == ({}, [(1, "one", None), (1, "q", None), (2, "two", None)])
