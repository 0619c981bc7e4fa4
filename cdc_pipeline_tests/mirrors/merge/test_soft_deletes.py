"""`soft_delete`: one stream in two cuts with every way of deleting rows, and a rebuild in one cut."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import cdc_pipeline
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.changes.progress import published_cut
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.cuts.cut_report import CutReport, published_entries
from cdc_pipeline.mirrors.model.masks import HASH, NULL
from cdc_pipeline.mirrors.model.state import METADATA_COLUMNS, MirrorState
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.ddl_stories import _BY_RANGE
from cdc_pipeline_tests.support.lakes.mirror_checks import mirror_checks
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import KEYED, KEYLESS, TYPES, change, create, delete, put, update, wide
from cdc_pipeline_tests.support.masks import SALT, hashed
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, row, tso, watermark, watermark_tso

RULES = ColumnRules(masks=(("db.m", (("mail", HASH), ("phone", NULL))),), salt=SALT, soft_delete=("db.*",))
Rows = list[tuple[Any, ...]]


def _bare(table: str, step: int, key: str) -> tuple[str, int]:
    """A DELETE with its key only."""
    return row("DELETE", table, step, {"id": key}, types=TYPES, key=["id"]), 1


def _with_new_key(sent: tuple[str, int]) -> tuple[str, int]:
    return sent[0].replace('"pkNames": ["id"]', '"pkNames": ["v"]'), sent[1]


def _person(kind: str, step: int, key: str, mail: str, n: str) -> tuple[str, int]:
    """Without the virtual column, which TiCDC does not send."""
    types = {"id": "int", "mail": "varchar(40)", "phone": "varchar(20)", "n": "int"}
    return row(kind, "m", step, {"id": key, "mail": mail, "phone": "clear", "n": n}, types=types, key=["id"]), 1


FIRST = [
    *(create(table, 1) for table in ("s", "t", "x", "k", "o")),
    create("p", 1, KEYED + _BY_RANGE),
    create("bag", 1, KEYLESS),
    create(
        "m", 1, "CREATE TABLE `{}` (id INT PRIMARY KEY, mail VARCHAR(40), phone VARCHAR(20), n INT, g INT AS (n + 1))"
    ),
    *(put("s", 2, key, value) for key, value in (("1", "a"), ("2", "b"), ("3", "c"), ("4", "d"))),
    delete("s", 3, "4", "d"),
    *(put("t", 2, key, value) for key, value in (("1", "a"), ("2", "b"))),
    delete("t", 3, "2", "b"),
    *(put("p", 2, key, value) for key, value in (("1", "a"), ("15", "b"), ("16", "gone"), ("25", "c"))),
    *(delete("p", 3, key, value) for key, value in (("16", "gone"), ("25", "c"))),
    *(put("x", 2, key, value) for key, value in (("16", "y"), ("17", "w"))),
    delete("x", 3, "17", "w"),
    *(put("k", 2, key, value) for key, value in (("1", "a"), ("2", "b"), ("3", "c"))),
    *(delete("k", 3, key, value) for key, value in (("1", "a"), ("2", "b"))),
    put("k", 5, "4", "b"),
    *(put("o", 2, key, value) for key, value in (("1", "a"), ("2", "b"), ("4", "d"))),
    delete("o", 3, "2", "b"),
    put("bag", 2, "1", "x"),
    put("bag", 2, "1", "x"),
    _person("INSERT", 2, "1", "clear-a", "5"),
]
SECOND = [
    update("s", 11, ("1", "a"), ("1", "a2")),
    delete("s", 12, "1", "a2"),
    delete("s", 11, "2", "b"),
    put("s", 12, "2", "bb"),
    update("s", 11, ("3", "c"), ("30", "c")),
    _bare("s", 14, "30"),
    put("s", 11, "5", "e"),
    update("s", 12, ("5", "e"), ("5", "e2")),
    _bare("s", 13, "5"),
    put("s", 11, "6", "f"),
    delete("s", 11, "9", "z"),
    put("t", 11, "3", "c"),
    change("TRUNCATE TABLE t", 12),
    change("FLASHBACK TABLE t TO t2", 13),
    put("t", 14, "1", "again"),
    put("t", 14, "4", "d"),
    put("t2", 14, "5", "e"),
    change("ALTER TABLE p TRUNCATE PARTITION p0", 11),
    change("ALTER TABLE p EXCHANGE PARTITION p1 WITH TABLE x", 12),
    put("p", 13, "12", "n"),
    # without a key rows are inserted and deleted as upstream, next to the kept ones
    change("ALTER TABLE k MODIFY v VARCHAR(20) NOT NULL, DROP PRIMARY KEY", 11),
    *[put("k", 12, "7", "q")] * 2,
    delete("k", 13, "3", "c"),
    delete("k", 13, "7", "q"),
    change("ALTER TABLE k ADD PRIMARY KEY (v)", 14),
    *map(_with_new_key, (put("k", 15, "5", "a"), delete("k", 16, "7", "q"))),
    change("ALTER TABLE o ADD COLUMN _deleted INT DEFAULT 7", 11),
    wide("INSERT", "o", 12, {"id": "3", "v": "c", "_deleted": "5"}),
    wide("DELETE", "o", 13, {"id": "1", "v": "a", "_deleted": "7"}),
    delete("bag", 11, "1", "x"),
    _person("DELETE", 11, "1", "clear-a", "5"),
    _person("INSERT", 11, "2", "clear-b", "7"),
    _person("DELETE", 12, "2", "clear-b", "7"),
    _person("DELETE", 12, "3", "clear-c", "x1"),
]
# the columns, then `_deleted`
ROWS: dict[str, Rows] = {
    "s": [
        (1, "a2", True),
        (2, "bb", False),
        (3, "c", True),
        (4, "d", True),
        (5, "e2", True),
        (6, "f", False),
        (9, "z", True),
        (30, "c", True),
    ],
    "t": [(1, "again", False), (2, "b", True), (3, "c", True), (4, "d", False)],
    "t2": [(5, "e", False)],
    "p": [(1, "a", True), (12, "n", False), (16, "y", False), (25, "c", True)],
    "x": [(15, "b", False), (17, "w", True)],
    "k": [(4, "b", False), (5, "a", False), (7, "q", True)],
    "m": [
        (1, hashed("clear-a"), None, 5, 6, True),
        (2, hashed("clear-b"), None, 7, 8, True),
        (3, hashed("clear-c"), None, None, None, True),
    ],
    # without `_deleted`
    "o": [(3, "c", 5), (4, "d", 7)],
    "bag": [(1, "x")],
}


@dataclass
class Ingested:
    paths: LakePaths
    reports: list[CutReport] = field(default_factory=list)
    said: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, way: str) -> Ingested:
    folder, topic = tmp_path_factory.mktemp(f"soft-{way}"), Topic()
    found = Ingested(LakePaths(str(folder / "lake"), "shop"))
    for number, messages in enumerate((FIRST, SECOND)):
        for payload, partition in messages:
            topic.send(payload, partition)
        for partition in (0, 1):
            topic.send(watermark(10 + 10 * number), partition)
        topic.write(folder / "captures", f"{number}.jsonl")
        found.reports.append(ingest(spark, found.paths, folder / "captures", columns=RULES, report=found.said.append))
    return found


def _rows(spark: SparkSession, paths: LakePaths, table: str) -> Rows:
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", table)))
    return sorted(tuple(found) for found in mirror.drop(*METADATA_COLUMNS).collect())


@pytest.mark.parametrize("table", ROWS)
def test_rows(ingested: Ingested, spark: SparkSession, table: str) -> None:
    assert _rows(spark, ingested.paths, table) == ROWS[table]


def test_origins_and_gaps(ingested: Ingested, spark: SparkSession) -> None:
    s = spark.read.format("delta").load(ingested.paths.mirror(TableName("db", "s")))
    assert s.columns == ["id", "v", *METADATA_COLUMNS, "_deleted"]
    # metadata of the DELETE; of a row that no message deleted, its own
    assert {found.id: found["_commit_ts"] for found in s.where("_deleted").collect()} == {
        key: tso(step) for key, step in ((1, 12), (3, 11), (4, 3), (5, 13), (9, 11), (30, 14))
    }
    t = spark.read.format("delta").load(ingested.paths.mirror(TableName("db", "t"))).where("_deleted")
    assert {found.id: found["_commit_ts"] for found in t.collect()} == {2: tso(3), 3: tso(11)}
    states = {}
    for table in ROWS:
        state = table_state(spark, ingested.paths.mirror(TableName("db", table)))
        assert state is not None
        states[table] = MirrorState.from_properties(state.properties)
    assert {table: state.soft_delete_key for table, state in states.items()} == {
        **dict.fromkeys(("s", "t", "t2", "p", "m"), ("id",)),
        "x": (),  # keys are made unique before rows are merged
        "k": ("v",),
        **dict.fromkeys(("o", "bag"), None),
    }
    gaps = {table: state.gaps for table, state in states.items() if state.gaps}
    assert list(gaps) == ["t2", "o"]
    assert str(gaps["t2"][0]).startswith(
        "RECOVER or FLASHBACK brought the table back without its rows: they were truncated"
    )
    assert str(gaps["o"][0]).startswith("soft_delete: the table has a column _deleted of its own")
    lines = sorted({line for line in ingested.said if line.startswith("soft_delete")})
    assert lines == [
        "soft_delete: db.bag does not keep deleted rows: its rows have no key",
        "soft_delete: db.o does not keep deleted rows: the table has a column _deleted of its own",
    ]


def test_what_is_counted_and_checked_is_what_upstream_has(ingested: Ingested, spark: SparkSession) -> None:
    entries = published_entries(published_cut(Lake(spark, ingested.paths)), ingested.paths)
    live = {table: sum(found[-1] is not True for found in rows) for table, rows in ROWS.items()}
    assert {entry.name.table: entry.rows for entry in entries} == live
    counts = ingested.reports[1].changed[TableName("db", "s")]
    assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 2)
    assert [(check.passed, check.description) for check in mirror_checks(spark, ingested.paths)] == [(True, None)] * 3


def test_read_cut_gives_what_upstream_had(ingested: Ingested, spark: SparkSession) -> None:
    tables = cdc_pipeline.read_cut(spark, ingested.paths.root, "shop", watermark_tso(20))
    for table, rows in ROWS.items():
        found = tables["db", table].drop(*METADATA_COLUMNS).collect()
        soft = table not in ("o", "bag")
        assert sorted(map(tuple, found)) == [cells[:-1] if soft else cells for cells in rows if cells[-1] is not True]
    before = cdc_pipeline.read_cut(spark, ingested.paths.root, "shop", watermark_tso(10))
    assert sorted(map(tuple, before["db.o"].drop(*METADATA_COLUMNS).collect())) == [(1, "a"), (4, "d")]


def test_a_rebuild_is_equal(ingested: Ingested, spark: SparkSession) -> None:
    maker = CutMaker(Lake(spark, ingested.paths), "again", "UTC", 2, lambda _: None, columns=RULES)
    report = Rebuilder(maker).rebuild(["db.*"])
    assert {table.table for table in report.tables} == {f"mirror/db.{table}" for table in ROWS}
    assert [table.table for table in report.tables if not table.equal] == []
    assert report.cut_id is None


def test_without_watermarks_and_made_so_by_a_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    paths, topic = LakePaths(str(tmp_path / "lake"), "shop"), Topic()
    types = {"id": "int", "v": "varchar(20)"}

    def change_of(kind: str, step: int, **image: str) -> str:
        return canal(kind, "c", step, [dict(image)], types={name: types[name] for name in image}, key=["id"])

    old = [change_of("INSERT", 2, id=key, v=value) for key, value in (("1", "a"), ("2", "b"), ("3", "c"))]
    # MINIMAL: a DELETE has the key only
    first = [change_of("DELETE", 3, id="1"), change_of("DELETE", 3, id="2"), change_of("INSERT", 4, id="2", v="bb")]
    second = [*old, change_of("DELETE", 3, id="2"), change_of("DELETE", 5, id="3")]
    table = canal_ddl("CREATE TABLE c (id INT PRIMARY KEY, v VARCHAR(20))", 1, table="c", kind="CREATE")

    def ingested(name: str, messages: list[str], columns: ColumnRules) -> list[str]:
        said: list[str] = []
        for message in messages:
            topic.send(message)
        topic.write(tmp_path / "captures", name)
        ingest(spark, paths, tmp_path / "captures", columns=columns, report=said.append)
        return [line for line in said if line.startswith("soft_delete")]

    # a mirror created without soft_delete has it after a rebuild
    ingested("0.jsonl", [table, *old, *first], ColumnRules())
    assert _rows(spark, paths, "c") == [(2, "bb"), (3, "c")]
    Rebuilder(CutMaker(Lake(spark, paths), "r", "UTC", 2, lambda _: None, columns=RULES)).rebuild()
    assert _rows(spark, paths, "c") == [(1, "a", True), (2, "bb", False), (3, "c", False)]
    assert ingested("1.jsonl", second, RULES) == []
    assert _rows(spark, paths, "c") == [(1, "a", True), (2, "bb", False), (3, "c", True)]
