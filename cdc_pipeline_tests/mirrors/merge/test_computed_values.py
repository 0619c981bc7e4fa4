"""Computed columns: one stream in two cuts with every way in which rows are written to a mirror, and a rebuild."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.assets.nodes import catalog_entries, mirror_lineage
from cdc_pipeline.lake.catalog import CatalogColumn
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_execution import mirror_entry
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.merge.computed_values import computed_problems
from cdc_pipeline.mirrors.model.computed_columns import ComputedColumn
from cdc_pipeline.mirrors.model.masks import HASH
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.model.steps import UpdateState
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline.pipeline import Pipeline
from cdc_pipeline.sources.capture_files.source import CaptureFiles
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.masks import SALT, hashed, texts
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, ddl, row, watermark

_DERIVED = (
    (
        "db.s_*",
        (
            ComputedColumn("total", "decimal(12,2)", "price * quantity"),
            # the common subexpression fails if quantity is 0
            ComputedColumn("ratio", "int", "price div quantity"),
            ComputedColumn("more", "int", "price div quantity + 1"),
        ),
    ),
    ("db.canal", (ComputedColumn("sum", "bigint", "a + b"), ComputedColumn("wrong", "int", "a + 1/0"))),
    ("db.made", (ComputedColumn("next", "decimal(12,2)", "b + 1"),)),
    ("db.p", (ComputedColumn("upper", "string", "upper(V)"),)),
    ("db.q", (ComputedColumn("lower", "string", "lower(v)"), ComputedColumn("today", "date", "'today'"))),
    ("db.bag", (ComputedColumn("both", "array<string>", "array(w, upper(v))"),)),
)
RULES = ColumnRules(masks=(("db.bag", (("w", HASH),)),), salt=SALT, computed=_DERIVED)
LATER = ColumnRules(masks=(("db.bag", (("w", HASH), ("v", HASH))),), salt=SALT, computed=_DERIVED)


def _sale(
    kind: str,
    table: str,
    step: int,
    *cells: str | None,
    old: dict[str, str | None] | None = None,
    names: str = "id price quantity",
) -> str:
    return row(kind, table, step, dict(zip(names.split(), cells, strict=True)), old=old, key=["id"])


def _text(kind: str, table: str, step: int, one: str, v: str) -> str:
    names = ("w", "v") if table == "bag" else ("id", "v")
    return row(kind, table, step, dict(zip(names, (one, v), strict=True)), key=[] if table == "bag" else ["id"])


def _canal(kind: str, step: int, image: dict[str, str | None], old: dict[str, str | None] | None = None) -> str:
    return canal(kind, "canal", step, [image], old=old and [old], types=dict.fromkeys(image, "int"), key=["id"])


_SALE = "id INT PRIMARY KEY, price DECIMAL(10,2), quantity INT"
_PARTS = "PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE"
FIRST = (
    *(ddl(f"CREATE TABLE {name} ({_SALE})", 1) for name in ("s_keyed", "draft")),
    ddl("CREATE TABLE bag (w VARCHAR(20), v VARCHAR(30))", 1),
    ddl("CREATE TABLE made (id INT PRIMARY KEY, a DECIMAL(10,2), b DECIMAL(12,2) AS (a * 2) STORED)", 1),
    _sale("INSERT", "made", 2, "1", "1.60", "3.20", names="id a b"),
    ddl("CREATE TABLE q (id INT PRIMARY KEY, v VARCHAR(30))", 1),
    ddl(f"CREATE TABLE p (id INT PRIMARY KEY, v VARCHAR(30)) PARTITION BY RANGE (id) ({_PARTS})", 1),
    canal_ddl("CREATE TABLE canal (id INT PRIMARY KEY, a INT, b INT DEFAULT 4)", 1, table="canal", kind="CREATE"),
    *(_sale("INSERT", name, 2, "1", "1.50", "2") for name in ("s_keyed", "draft")),
    _sale("INSERT", "s_keyed", 2, "2", "7.00", "0"),
    _sale("INSERT", "s_keyed", 2, "3", "99999999.99", "2000000000"),
    *(_text("INSERT", "bag", 2, "clear-w", v) for v in ("shown-a", "shown-a", "shown-b")),
    *(_text("INSERT", name, 2, place, "Vv") for name, place in (("p", "5"), ("p", "15"), ("q", "7"))),
    _canal("INSERT", 2, {"id": "1", "a": "1", "b": "2"}),
)
SECOND = (
    _sale("UPDATE", "s_keyed", 11, "1", "1.50", "3", old={"quantity": "2"}),
    _sale("UPDATE", "s_keyed", 11, "2", "7.00", "2", old={"quantity": "0"}),
    _sale("DELETE", "s_keyed", 11, "3", "99999999.99", "2000000000"),
    _sale("INSERT", "s_keyed", 12, "4", "1.00", "0"),
    # a changed type; a dropped column and rows without it; another column of that name
    ddl("ALTER TABLE s_keyed MODIFY quantity BIGINT, RENAME COLUMN price TO cost", 13),
    _sale("INSERT", "s_keyed", 14, "5", "9.00", "4", names="id cost quantity"),
    ddl("ALTER TABLE s_keyed ADD COLUMN price DECIMAL(10,2) DEFAULT 5", 15),
    # its generated column changes with it, without a message
    ddl("ALTER TABLE made MODIFY a DECIMAL(10,0)", 13),
    ddl("RENAME TABLE draft TO s_final", 11),
    _sale("INSERT", "s_final", 12, "2", "9.00", "4"),
    ddl("ALTER TABLE s_final ADD COLUMN Total VARCHAR(5) DEFAULT 'own'", 13),
    _text("DELETE", "bag", 11, "clear-w", "shown-a"),
    _text("INSERT", "bag", 12, "clear-w", "shown-c"),
    ddl("ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE q", 12),
    # an image without an input column, and an INSERT whose absent columns have defaults
    _canal("UPDATE", 11, {"id": "1", "a": "5"}, {"a": "1"}),
    _canal("INSERT", 12, {"id": "2", "a": "1"}),
)


def _sold(one: int, cost: str, quantity: int, *others: object) -> tuple[object, ...]:
    return one, Decimal(cost), quantity, *(Decimal(found) if isinstance(found, str) else found for found in others)


_W = hashed("clear-w")
BEFORE = [
    _sold(1, "1.50", 2, "3.00", 0, 1),
    _sold(2, "7.00", 0, "0.00", None, None),
    _sold(3, "99999999.99", 2000000000, None, 0, 1),
]
ROWS: dict[str, list[tuple[object, ...]]] = {
    "s_keyed": [
        _sold(1, "1.50", 3, "5.00", "15.00", 1, 2),
        _sold(2, "7.00", 2, "5.00", "10.00", 2, 3),
        _sold(4, "1.00", 0, "5.00", "0.00", None, None),
        _sold(5, "9.00", 4, "5.00", "20.00", 1, 2),
    ],
    "s_final": [(1, Decimal("1.50"), 2, "own", 0, 1), (2, Decimal("9.00"), 4, "own", 2, 3)],
    "bag": sorted((_W, hashed(v), [_W, hashed(v).upper()]) for v in ("shown-a", "shown-b", "shown-c")),
    "p": [(15, "Vv", "VV"), (7, "Vv", "VV")],
    "q": [(5, "Vv", "vv", None)],
    "made": [(1, Decimal(2), Decimal("4.00"), Decimal("5.00"))],
    "canal": [(1, 5, 2, 7, None), (2, 1, 4, 5, None)],
}


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    folder, topic = tmp_path_factory.mktemp("derived"), Topic()
    paths = LakePaths(str(folder / "lake"), "shop")
    for number, (messages, rules) in enumerate(((FIRST, RULES), (SECOND, LATER))):
        for message in (*messages, watermark(10 + 10 * number)):
            topic.send(message)
        topic.write(folder / "captures", f"{number}.jsonl")
        ingest(spark, paths, folder / "captures", columns=rules)
        if number == 0:
            assert _mirror(spark, paths, "s_keyed") == BEFORE
            (folder / "first").write_text("\n".join(map(str, _files(paths))))
    return paths


def _files(paths: LakePaths) -> list[Path]:
    """All files of `bag`."""
    return [path for path in Path(paths.mirror(TableName("db", "bag"))).rglob("*") if path.is_file()]


def _mirror(spark: SparkSession, paths: LakePaths, name: str) -> list[tuple[object, ...]]:
    """The rows without metadata columns."""
    mirror = spark.read.format("delta").load(paths.mirror(TableName("db", name)))
    return sorted((tuple(found)[:-4] for found in mirror.collect()), key=str)


def test_rows(ingested: LakePaths, spark: SparkSession) -> None:
    assert {name: _mirror(spark, ingested, name) for name in ROWS} == ROWS


def test_gaps_of_mirrors(ingested: LakePaths, spark: SparkSession) -> None:
    states = []
    for name in ROWS:
        table = table_state(spark, ingested.mirror(TableName("db", name)))
        assert table is not None
        states.append(MirrorState.from_properties(table.properties))
        own = [(field.name, field.dataType) for field in states[-1].spark_schema()]
        assert [(field.name, field.dataType) for field in table.schema] == own
        assert states[-1].gaps == ()
    maker = CutMaker(Lake(spark, ingested), "look", "UTC", 2, lambda _: None)
    name = TableName("db", "p")
    found = mirror_entry(maker.lake, name, ingested.mirror(name))
    assert found is not None
    (entry,) = catalog_entries(spark, [found])
    assert entry.columns[2] == CatalogColumn("upper", "string", "computed as upper(V)")
    lineage = mirror_lineage(Pipeline("shop", CaptureFiles("c"), "lake"), entry).deps_by_column
    assert lineage["upper"] == lineage["v"]
    problems = computed_problems(spark, [UpdateState(state) for state in states])
    assert [line for line in problems if "db.canal" not in line] == [
        "computed: db.q.today is NULL: \"'today'\" depends on the current time; "
        "expected Spark's deterministic functions of the row's columns",
        "computed: db.s_final.total is missing: the mirror has another column with that name",
    ]
    assert [line[:61] for line in problems if "db.canal" in line] == [
        "computed: db.canal.wrong is NULL: 'a + 1/0': [DIVIDE_BY_ZERO]"
    ]


def test_no_file_has_what_is_masked_in_clear(ingested: LakePaths) -> None:
    files = _files(ingested)
    assert [str(path) for path in files if "clear-w" in texts(path).lower()] == []
    # `v` was not masked when the first files were written
    first = (Path(ingested.root).parent / "first").read_text().split("\n")
    later = [path for path in files if str(path) not in first]
    assert len(later) > 3
    assert [str(path) for path in later if "shown-" in texts(path).lower()] == []


def test_a_rebuild_is_equal_and_takes_up_what_is_declared_now(ingested: LakePaths, spark: SparkSession) -> None:
    # only the changed declaration of `canal` is recomputed
    at = (ComputedColumn("at", "timestamp_ntz", "timestamp_ntz '2026-01-01 00:00:00'"),)
    rules = ColumnRules(masks=LATER.masks, salt=SALT, computed=(("db.canal", at), *RULES.computed))
    maker = CutMaker(Lake(spark, ingested), "again", "UTC", 2, lambda _: None, columns=rules)
    report = Rebuilder(maker).rebuild(["db.canal", "db.s_keyed", "db.bag"])
    assert [(table.table, table.equal) for table in report.tables] == [
        ("mirror/db.bag", True),
        ("mirror/db.canal", False),
        ("mirror/db.s_keyed", True),
    ]
    mirror = spark.read.format("delta").load(ingested.mirror(TableName("db", "canal")))
    assert mirror.columns[:-4] == ["id", "a", "b", "at", "sum", "wrong"]
    assert [str(found.at) for found in mirror.collect()] == ["2026-01-01 00:00:00"] * 2
