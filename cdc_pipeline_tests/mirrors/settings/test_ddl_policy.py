"""`ddl_policy`: `keep` keeps what DDL drops, `hold` holds the table until the statement is approved."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport
from cdc_pipeline.mirrors.cuts.totals import lake_balance
from cdc_pipeline.mirrors.operations import rebuild
from cdc_pipeline.mirrors.operations.dry_run import pending_statements
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.ddl_policy import POLICY_JSON, DdlPolicy
from cdc_pipeline.mirrors.settings.selection import ALL_TABLES, TableSelection
from cdc_pipeline.mysql.model.quoted_names import quoted
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, delete, put, wide
from cdc_pipeline_tests.support.messages import Topic, tso, watermark

PARTITIONS = (0, 1, 2)
Found = dict[str, list[tuple[str | None, ...]]]


class Ingested:
    """A lake with one policy, built from batches of messages."""

    def __init__(self, spark: SparkSession, folder: Path, policy: DdlPolicy) -> None:
        self.spark, self.folder, self.policy = spark, folder, policy
        self.paths = LakePaths(str(folder / "lake"), "p")
        self.topic = Topic()
        self.parts = 0

    def send(self, messages: list[tuple[str, int]], end: int) -> CutReport:
        """Sends messages and a watermark to each partition, and makes a cut."""
        for payload, partition in messages:
            self.topic.send(payload, partition)
        for partition in PARTITIONS:
            self.topic.send(watermark(end), partition)
        self.parts += 1
        self.topic.write(self.folder / "captures", f"{self.parts}.jsonl")
        return ingest(self.spark, self.paths, self.folder / "captures", policy=self.policy)

    def maker(self) -> CutMaker:
        return CutMaker(Lake(self.spark, self.paths), "again", "UTC", 2, lambda line: None, {}, self.policy)

    def held(self) -> list[str]:
        return sorted(table.name.table for table in published_cut(Lake(self.spark, self.paths)).held)

    def approve(self, *tables: str) -> None:
        """Approves what these tables wait for."""
        held = published_cut(Lake(self.spark, self.paths)).held
        maker = replace(self.maker(), run_id=uuid.uuid4().hex)
        Rebuilder(maker).approve([table for table in held if table.name.table in tables])
        assert lake_balance(Lake(self.spark, self.paths)).is_balanced

    def rows(self, *tables: str) -> Found:
        """The rows of mirrors as texts, after a row of column names."""
        found: Found = {}
        for table in tables:
            path = self.paths.mirror(TableName("db", table))
            if table_state(self.spark, path) is None:
                continue
            mirror = self.spark.read.format("delta").load(path)
            columns = [name for name in mirror.columns if name not in _TRACE]
            rows = mirror.select(*(F.col(quoted(name)).cast("string") for name in columns)).collect()
            found[table] = [tuple(columns), *sorted(map(tuple, rows), key=str)]
        return found

    def statuses(self) -> list[str]:
        history = self.spark.read.format("delta").load(self.paths.table("ddl_history"))
        return [row["status"] for row in history.orderBy("commit_ts", "offset").collect()]


_TRACE = {"_commit_ts", "_topic", "_partition", "_offset"}


# `keep` and `hold` in the same batches: one lake for both.
_KEPT_COLUMN = f"v__dropped_{tso(3)}"
_KEPT_TABLE = f"kgone__dropped_{tso(4)}"
_KEPT: list[list[tuple[str, int]]] = [
    [create("kt", 1), create("kbag", 1, KEYLESS), create("plain", 1), create("kgone", 1), put("kgone", 2, "1", "g")]
    + [put("kt", 2, "1", "a"), put("kt", 2, "2", "b"), put("kbag", 2, "1", "x"), put("kbag", 2, "1", "x")]
    + [change("ALTER TABLE kt DROP COLUMN v", 3), change("ALTER TABLE kbag DROP COLUMN v", 3)]
    + [change("DROP TABLE kgone", 4), change("ALTER TABLE plain DROP COLUMN v", 4)],
    [wide("INSERT", "kt", 11, {"id": "3"}), change("ALTER TABLE kt ADD COLUMN v INT DEFAULT 7 FIRST", 12)]
    + [wide("DELETE", "kbag", 11, {"id": "1"})],
    [change("RECOVER TABLE kgone", 21), put("kgone", 22, "2", "h")],
]
_KEPT_ROWS: list[Found] = [
    {_KEPT_TABLE: [("id", "v"), ("1", "g")]},
    {
        "kt": [("v", "id", _KEPT_COLUMN), ("7", "1", "a"), ("7", "2", "b"), ("7", "3", None)],
        "kbag": [("id", _KEPT_COLUMN), ("1", "x")],
        "plain": [("id",)],
        _KEPT_TABLE: [("id", "v"), ("1", "g")],
    },
    {"kgone": [("id", "v"), ("1", "g"), ("2", "h")]},
]


def test_what_is_dropped_is_kept_and_a_table_waits_until_its_statement_is_approved(
    spark: SparkSession, tmp_path: Path
) -> None:
    ingested = Ingested(spark, tmp_path, DdlPolicy("apply", (("db.h*", "hold"), ("db.k*", "keep"))))
    report = ingested.send(
        [create("held", 1), create("hbag", 1, KEYLESS), create("free", 1), put("held", 2, "1", "a")]
        + [put("hbag", 2, "1", "x"), put("hbag", 2, "1", "x"), put("free", 2, "1", "f")]
        + [change("TRUNCATE TABLE free", 3), change("ALTER TABLE held DROP COLUMN v, ADD COLUMN n INT DEFAULT 5", 4)]
        + [
            change("TRUNCATE TABLE hbag", 4),
            put("hbag", 5, "2", "y"),
            put("hbag", 5, "2", "y"),
            put("free", 5, "2", "g"),
        ]
        + [wide("INSERT", "held", 5, {"id": "2", "n": "6"}), change("ALTER TABLE held ADD COLUMN m INT", 6)]
        + _KEPT[0],
        10,
    )
    assert ingested.rows("kgone", _KEPT_TABLE) == _KEPT_ROWS[0]
    before = {
        "held": [("id", "v"), ("1", "a")],
        "hbag": [("id", "v"), ("1", "x"), ("1", "x")],
        "free": [("id", "v"), ("2", "g")],
    }
    assert ingested.rows("held", "hbag", "free") == before
    assert {str(table.name): (table.rows, table.commit_ts) for table in report.held} == {
        "db.held": (1, tso(4)),
        "db.hbag": (2, tso(4)),
    }
    assert report.totals.pending == 3
    gaps = {str(entry.name): entry.gaps for entry in report.mirrors}
    assert gaps["db.hbag"][0].startswith("held (ddl_policy) until its statement is approved: see ddl_history at t/")
    assert gaps["db.free"] == ()
    # other tables continue; a swap with a held table holds the other table too
    report = ingested.send(
        [wide("INSERT", "held", 11, {"id": "3", "n": "8", "m": "9"}), put("free", 11, "3", "h"), create("partner", 11)]
        + [put("partner", 12, "1", "p"), change("RENAME TABLE held TO tmp, partner TO held, tmp TO partner", 13)]
        + [put("held", 14, "2", "q"), wide("INSERT", "partner", 14, {"id": "4", "n": "1", "m": "2"})]
        + _KEPT[1],
        20,
    )
    assert ingested.rows("kt", "kbag", "plain", "kgone", _KEPT_TABLE) == _KEPT_ROWS[1]
    assert ingested.rows("held", "free", "partner", "tmp") == {
        "held": before["held"],
        "free": [("id", "v"), ("2", "g"), ("3", "h")],
        "partner": [("id", "v"), ("1", "p")],
    }
    assert report.totals.pending == 6
    unchanged = ingested.maker().advance()
    assert (unchanged.published, unchanged.totals.pending) == (False, 6)
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
    assert ingested.statuses().count("held") == 4

    lake = Lake(spark, ingested.paths)
    pending = pending_statements(lake, published_cut(lake), ALL_TABLES)
    shown = {found.sql: found.effect for found in pending}
    assert shown["TRUNCATE TABLE hbag"] == "TRUNCATE TABLE db.hbag"
    (emptied,) = {
        (found.loss, found.waiting) for found in pending if found.sql == "TRUNCATE TABLE hbag" and found.waiting
    }
    assert emptied == ("all 2 rows of db.hbag", 2)
    assert "RENAME TABLE db.partner to db.held" in shown["RENAME TABLE held TO tmp, partner TO held, tmp TO partner"]
    assert ingested.rows("held", "hbag") == {"held": before["held"], "hbag": before["hbag"]}

    ingested.approve("held")
    assert ingested.rows("held", "partner", "hbag", "tmp") == {
        "partner": [("id", "n", "m"), ("1", "5", None), ("2", "6", None), ("3", "8", "9"), ("4", "1", "2")],
        "held": [("id", "v"), ("1", "p"), ("2", "q")],
        "hbag": before["hbag"],
    }
    assert (ingested.held(), ingested.statuses().count("held")) == (["hbag"], 1)

    # a run that ends before it has replaced the mirror
    with patch.object(Rebuilder, "replace_differing", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        ingested.approve("hbag")
    assert (ingested.held(), ingested.statuses().count("held")) == (["hbag"], 1)
    (status,) = {one.status for one in pending_statements(lake, published_cut(lake), ALL_TABLES)}
    assert status.startswith("approved by run ")
    ingested.approve("hbag")
    assert not pending_statements(lake, published_cut(lake), ALL_TABLES)
    report = ingested.send([put("hbag", 21, "3", "z"), delete("hbag", 22, "2", "y"), *_KEPT[2]], 30)
    assert ingested.rows("kgone", _KEPT_TABLE) == _KEPT_ROWS[2]
    assert ingested.rows("hbag") == {"hbag": [("id", "v"), ("2", "y"), ("3", "z")]}
    assert report.held == ()
    assert report.totals.pending == 0
    assert all(entry.gaps == () for entry in report.mirrors)
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
    assert Rebuilder(ingested.maker()).rebuild().all_equal


def test_a_dropped_database_waits_table_by_table(spark: SparkSession, tmp_path: Path) -> None:
    ingested = Ingested(spark, tmp_path, DdlPolicy("hold", (("db.b", "apply"),)))
    ingested.send(
        [create("a", 1), create("b", 1), put("a", 2, "1", "x"), put("b", 2, "1", "y"), change("DROP DATABASE db", 3)]
        + [create("a", 4), create("b", 4), put("a", 5, "2", "x"), put("b", 5, "2", "y")],
        10,
    )
    assert ingested.rows("a", "b") == {"a": [("id", "v"), ("1", "x")], "b": [("id", "v"), ("2", "y")]}
    ingested.approve("a")
    assert ingested.rows("a", "b") == {"a": [("id", "v"), ("2", "x")], "b": [("id", "v"), ("2", "y")]}
    # rows that wait count as filtered when their table is excluded
    ingested.send([change("TRUNCATE TABLE a", 11), put("a", 12, "3", "x")], 20)
    report = replace(ingested.maker(), selection=TableSelection(exclude=("db.a",))).advance()
    assert (report.held, report.totals.filtered, report.totals.pending) == ((), 1, 0)
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced


def test_tables_that_wait_for_each_other(spark: SparkSession, tmp_path: Path) -> None:
    """Each approval is for one statement: the table waits again before its next one, or before that of a table that a
    RENAME ties to it. An approval that dies is given again."""
    ingested = Ingested(spark, tmp_path, DdlPolicy("hold"))
    ingested.send(
        [create("a", 1), create("b", 1), put("a", 2, "1", "x"), put("b", 2, "1", "y")]
        + [
            change("TRUNCATE TABLE a", 3),
            put("a", 4, "2", "x"),
            change("CREATE TABLE c LIKE a", 5),
            put("c", 6, "1", "z"),
        ]
        + [change("TRUNCATE TABLE a", 7), put("a", 8, "3", "x")],
        10,
    )
    ingested.send(
        [change("TRUNCATE TABLE b", 11), change("RENAME TABLE a TO x, b TO a, x TO b", 12), put("a", 13, "2", "y")], 20
    )
    assert ingested.held() == ["a", "b", "c", "x"]
    with patch.object(rebuild, "publish", side_effect=RuntimeError("killed")), pytest.raises(RuntimeError):
        ingested.approve("a")
    ingested.send([put("c", 21, "2", "z")], 30)
    before = {"a": [("id", "v"), ("2", "x")], "b": [("id", "v"), ("1", "y")]}
    ingested.approve("a")
    assert ingested.held() == ["a", "b", "x"]
    assert ingested.rows("a", "b", "c") == before | {"c": [("id", "v"), ("1", "z"), ("2", "z")]}
    ingested.approve("a")
    assert (ingested.held(), ingested.rows("a")) == (["a", "b", "x"], {"a": [("id", "v"), ("3", "x")]})
    ingested.approve("a")
    assert ingested.rows("a", "b") == {"a": [("id", "v"), ("2", "y")], "b": [("id", "v"), ("3", "x")]}
    assert (ingested.held(), Rebuilder(ingested.maker()).rebuild().all_equal) == ([], True)


def test_a_rebuild_under_another_policy_ends_the_wait(spark: SparkSession, tmp_path: Path) -> None:
    """Also of a table whose statement changes nothing. Without another policy, waiting tables are no difference."""
    ingested = Ingested(spark, tmp_path, DdlPolicy("hold"))
    ingested.send(
        [create("a", 1), create("b", 1), change("TRUNCATE TABLE a", 3), change("TRUNCATE TABLE b", 3)]
        + [put("b", 5, "2", "y")],
        10,
    )
    for patterns in ((), ("db.b",)):
        report = Rebuilder(ingested.maker()).rebuild(patterns)
        assert (report.all_equal, report.cut_id) == (True, None)
    ingested.policy = DdlPolicy("hold", (("db.a", "apply"),))
    report = Rebuilder(ingested.maker()).rebuild(["db.a"])
    assert (report.all_equal, report.cut_id) == (True, 2)
    assert [(str(table.name), table.rows) for table in published_cut(Lake(spark, ingested.paths)).held] == [("db.b", 1)]
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced
    ingested.policy = DdlPolicy("apply")
    assert Rebuilder(ingested.maker()).rebuild().cut_id == 3
    assert published_cut(Lake(spark, ingested.paths)).held == ()
    assert (ingested.rows("b"), ingested.statuses().count("held")) == ({"b": [("id", "v"), ("2", "y")]}, 0)
    assert lake_balance(Lake(spark, ingested.paths)).is_balanced


def test_a_rebuild_holds_no_statement_that_was_applied_before(spark: SparkSession, tmp_path: Path) -> None:
    ingested = Ingested(spark, tmp_path, DdlPolicy("apply"))
    ingested.send([create("a", 1), put("a", 2, "1", "x"), change("TRUNCATE TABLE a", 3), put("a", 5, "2", "y")], 10)
    ingested.policy = DdlPolicy("hold")
    for patterns in ((), ("db.a",)):
        report = Rebuilder(ingested.maker()).rebuild(patterns)
        assert (report.all_equal, report.cut_id) == (True, None)


def test_a_rebuild_that_holds_a_late_statement_loses_nothing_after_its_approval(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Neither the rows that waited before, nor one that arrived after a watermark had closed its time."""
    ingested = Ingested(spark, tmp_path, DdlPolicy("hold"))
    ingested.send([create("a", 1), put("a", 2, "1", "x"), put("a", 5, "2", "y")], 10)
    ingested.send([change("TRUNCATE TABLE a", 4), put("a", 7, "3", "late"), put("a", 12, "4", "z")], 20)
    assert ingested.statuses() == ["applied", "not applied yet"]
    lake = Lake(spark, ingested.paths)
    Rebuilder(ingested.maker()).rebuild(["db.a"])
    assert ingested.statuses() == ["applied", "held"]
    assert ingested.rows("a") == {"a": [("id", "v"), ("1", "x")]}
    assert lake_balance(lake).is_balanced
    ingested.approve("a")
    assert ingested.rows("a") == {"a": [("id", "v"), ("2", "y"), ("3", "late"), ("4", "z")]}


@pytest.mark.parametrize(
    ("name", "action"),
    [("shop.orders", "hold"), ("shop.other", "keep"), ("audit.x", "apply"), ("SHOP.Orders", "hold")],
)
def test_first_pattern_that_matches_counts(name: str, action: str) -> None:
    policy = DdlPolicy("apply", (("shop.orders", "hold"), ("shop.*", "keep")))
    assert policy.action_for(TableName(*name.split("."))) == action
    assert POLICY_JSON.from_json(POLICY_JSON.to_json(policy)) == policy
