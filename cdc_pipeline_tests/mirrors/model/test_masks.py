"""Masked columns: one stream in two cuts, after which no file of a mirror has a masked value in clear, and a rebuild."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.cuts.cut_maker import CutMaker
from cdc_pipeline.mirrors.merge.masked_values import with_masks
from cdc_pipeline.mirrors.model.masks import HASH, NULL
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mirrors.operations.rebuild import Rebuilder
from cdc_pipeline.mirrors.settings.column_rules import ColumnRules
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.masks import SALT, hashed, texts
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, ddl, row, watermark

_PEOPLE = (("mail", HASH), ("age", HASH), ("phone", NULL), ("mobile", HASH))
_OTHERS = (("db.k*", (("id", HASH),)), ("db.bag", (("v", NULL),)), ("db.canal", (("v", HASH),)))
RULES = ColumnRules(masks=(("db.people", (("email", HASH), *_PEOPLE[1:])), *_OTHERS), salt=SALT)
WITH_LATER = ColumnRules(masks=(*RULES.masks, ("db.later", (("v", HASH),))), salt=SALT)


def _people(
    kind: str, step: int, *cells: str | None, old: dict[str, str | None] | None = None, mail: str = "email"
) -> str:
    names = ("id", mail, "age", "phone", "mobile")
    types = {mail: "varchar(40)", "id": "int", "age": "int", "phone": "varchar(20)", "mobile": "varchar(20)"}
    data = dict(zip(names, cells, strict=False))
    return row(kind, "people", step, data, old=old, types={name: types[name] for name in data}, key=["id"])


def _two(kind: str, table: str, step: int, one: str, v: str, old: dict[str, str | None] | None = None) -> str:
    key = [] if table == "bag" else ["id"]
    return row(kind, table, step, {"id": one, "v": v}, old=old, key=key)


FIRST = (
    ddl("CREATE TABLE people (id INT PRIMARY KEY, email VARCHAR(40) DEFAULT 'clear-d', age INT, phone VARCHAR(20))", 1),
    *(ddl(f"CREATE TABLE {name} (id VARCHAR(20) PRIMARY KEY, v VARCHAR(20))", 1) for name in ("keyed", "later")),
    ddl("CREATE TABLE bag (id VARCHAR(20), v VARCHAR(20))", 1),
    _people("INSERT", 2, "1", "clear-a", "41", "clear-1"),
    _people("INSERT", 2, "2", "clear-b", None, "clear-2"),
    _people("INSERT", 2, "3", "clear-c", "43", None),
    _people("INSERT", 2, "4", "clear-c", "clear-age", None),
    *(_two("INSERT", "keyed", 2, f"clear-{name}", name) for name in "xyz"),
    *(_two("INSERT", "bag", 2, "1", f"clear-{name}") for name in "ab"),
    _two("INSERT", "bag", 2, "2", "clear-a"),
    _two("INSERT", "later", 2, "1", "shown-at-first"),
    # its default is not stored, so an INSERT without the column writes NULL and adds a gap
    canal_ddl(
        "CREATE TABLE canal (id INT PRIMARY KEY, v VARCHAR(9) DEFAULT 'clear-v')", 1, table="canal", kind="CREATE"
    ),
    canal("INSERT", "canal", 2, [{"id": "1"}], types={"id": "int"}, key=["id"]),
)
SECOND = (
    _people("UPDATE", 11, "1", "clear-new", "41", "clear-1", old={"email": "clear-a"}),
    _people("DELETE", 11, "2", "clear-b", None, "clear-2"),
    ddl("ALTER TABLE people ADD COLUMN mobile VARCHAR(20) DEFAULT 'clear-default', MODIFY id BIGINT", 12),
    ddl("ALTER TABLE people RENAME COLUMN email TO mail", 13),
    ddl("ALTER TABLE people ADD COLUMN loud VARCHAR(50) AS (UPPER(mail)) STORED", 14),
    _people("INSERT", 15, "5", "clear-c", "45", "clear-5", "clear-m", mail="mail"),
    _two("DELETE", "keyed", 11, "clear-x", "x"),
    _two("UPDATE", "keyed", 11, "clear-w", "w", old={"id": "clear-y", "v": "y"}),
    _two("UPDATE", "keyed", 12, "clear-z", "zz", old={"v": "z"}),
    # of rows that are equal after masking: one is deleted, another gets a new masked value
    _two("DELETE", "bag", 11, "1", "clear-a"),
    _two("UPDATE", "bag", 12, "1", "clear-c", old={"v": "clear-b"}),
    _two("INSERT", "bag", 12, "2", "clear-z"),
    _two("UPDATE", "later", 12, "1", "clear-later", old={"v": "shown-at-first"}),
    _two("INSERT", "later", 12, "2", "clear-second"),
)
ROWS: dict[str, list[tuple[object, ...]]] = {
    "people": [
        (1, hashed("clear-new"), hashed("41"), None, hashed("clear-default"), None),
        (3, hashed("clear-c"), hashed("43"), None, hashed("clear-default"), None),
        (5, hashed("clear-c"), hashed("45"), None, hashed("clear-m"), None),
    ],
    "keyed": sorted([(hashed("clear-w"), "w"), (hashed("clear-z"), "zz")]),
    "bag": [("1", None), ("2", None), ("2", None)],
    "later": [("1", hashed("clear-later")), ("2", hashed("clear-second"))],
    "canal": [(1, None)],
}


@pytest.fixture(scope="module")
def ingested(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, way: str) -> LakePaths:
    folder, topic = tmp_path_factory.mktemp(f"masks-{way}"), Topic()
    paths = LakePaths(str(folder / "lake"), "shop")
    for number, (messages, rules) in enumerate(((FIRST, RULES), (SECOND, WITH_LATER))):
        for message in (*messages, watermark(10 + 10 * number)):
            topic.send(message)
        topic.write(folder / "captures", f"{number}.jsonl")
        ingest(spark, paths, folder / "captures", columns=rules)
    return paths


def _state(spark: SparkSession, paths: LakePaths, name: str) -> MirrorState:
    table = table_state(spark, paths.mirror(TableName("db", name)))
    assert table is not None
    return MirrorState.from_properties(table.properties)


def test_rows(ingested: LakePaths, spark: SparkSession) -> None:
    found = {
        name: sorted(
            tuple(row)[:-4] for row in spark.read.format("delta").load(ingested.mirror(TableName("db", name))).collect()
        )
        for name in ROWS
    }
    assert found == ROWS


def test_what_mirrors_say_of_themselves(ingested: LakePaths, spark: SparkSession) -> None:
    people = _state(spark, ingested, "people")
    assert people.masks == _PEOPLE
    assert len(people.gaps) == 3
    assert any(
        gap.startswith("rows came without some columns") and gap.endswith(": loud") for gap in gap_texts(people.gaps)
    )
    bad = "1 row(s) with values that their types cannot hold: see dead_letters, the first at t/0@"
    assert any(gap.startswith(bad) for gap in gap_texts(people.gaps))
    assert any(gap.startswith("column loud is not recomputed in older rows") for gap in gap_texts(people.gaps))
    assert [_state(spark, ingested, name).gaps for name in ("keyed", "bag", "later")] == [(), (), ()]
    assert [gap.split(",")[0] for gap in gap_texts(_state(spark, ingested, "canal").gaps)] == [
        "rows came without some columns"
    ]


def test_no_file_has_a_masked_value_in_clear(ingested: LakePaths) -> None:
    home = Path(ingested.home)
    searched = [
        path
        for folder in ("mirror", "consistent_cuts")
        for path in (home / folder).rglob("*")
        # `later` was not masked when its first file was written
        if path.is_file() and not ("later" in path.parts and "shown-at-first" in texts(path))
    ]
    assert len(searched) > 30
    assert [str(path) for path in searched if "clear-" in texts(path)] == []
    assert [str(path) for path in [*searched, *(home / "cut_plans").rglob("*.parquet")] if SALT in texts(path)] == []
    # the reason of the dead letter does not reveal the value
    letters = "".join(texts(path) for path in (home / "dead_letters").glob("*.parquet"))
    assert "column age: expected int, found a masked value" in letters


def test_a_rebuild_is_equal_and_hashes_anew_under_another_salt(
    ingested: LakePaths, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as after a hundred batches
    monkeypatch.setattr("cdc_pipeline.mirrors.operations.rebuild.EVERY", 1)
    lines: list[str] = []
    salt = "another salt of the tests"
    rules = ColumnRules(masks=WITH_LATER.masks, salt=salt)
    maker = CutMaker(Lake(spark, ingested), "again", "UTC", 2, lines.append, columns=rules)
    report = Rebuilder(maker).rebuild()
    assert [line for line in lines if line.startswith("decod")] == [
        "decoding 2 batches again",
        "decoded 1 of 2 batches",
        "decoded 2 of 2 batches",
    ]
    assert {table.table for table in report.tables if not table.equal} == {
        f"mirror/db.{name}" for name in ("people", "keyed", "later")
    }
    keyed = spark.read.format("delta").load(ingested.mirror(TableName("db", "keyed"))).collect()
    assert sorted((row.id, row.v) for row in keyed) == sorted(
        [(hashed("clear-w", salt), "w"), (hashed("clear-z", salt), "zz")]
    )


_VALUES: dict[str, tuple[str, str]] = {
    "string": ("'é\U0001f600 '", "é\U0001f600 "),
    "int": ("-7", "-7"),
    "decimal(20,0)": ("18446744073709551615BD", "18446744073709551615"),
    "decimal(10,4)": ("-1.05BD", "-1.05"),
    "decimal(10,3)": ("100BD", "100"),
    "decimal(38,10)": ("0BD", "0"),
    "double": ("0.1D", "0.1"),
    "date": ("DATE'2026-01-02'", "2026-01-02"),
    "timestamp": ("TIMESTAMP'2026-01-02 03:04:05.5Z'", "2026-01-02 03:04:05.5"),
    "timestamp_ntz": ("TIMESTAMP_NTZ'2026-01-02 03:04:05'", "2026-01-02 03:04:05"),
    "binary": ("X'c3a9'", "é"),
    "array<float>": ("array(1.5F, 2.0F)", "[1.5,2.0]"),
}


@pytest.mark.parametrize("salt", [SALT, "long " * 30])
def test_hashes_are_hmac_and_no_plan_has_the_salt(spark: SparkSession, salt: str) -> None:
    cells = [f"CAST({sql} AS {kind}) AS `mask_inner{place}`" for place, (kind, (sql, _)) in enumerate(_VALUES.items())]
    frame = spark.sql(f"SELECT {', '.join(cells)}, CAST(NULL AS INT) AS mask_inner, 'x' AS `Mask_Outer`")
    names = frame.columns
    masked = with_masks(frame, {f.name: (f.dataType, HASH) for f in frame.schema.fields[:-1]}, salt)
    assert masked.columns == names
    assert list(masked.collect()[0]) == [*(hashed(text, salt) for _, text in _VALUES.values()), None, "x"]
    plans: Any = masked._jdf.queryExecution()
    text = plans.toString()
    key = hashlib.sha256(salt.encode()).digest() if len(salt) > 64 else salt.encode()
    pads = [bytes(byte ^ pad for byte in key) for pad in (0x36, 0x5C)]
    assert "\0mask_inner" in text
    assert [form for pad in (salt.encode(), *pads) for form in _forms(pad) if form in text] == []


def _forms(data: bytes) -> list[str]:
    return [
        data.decode("latin-1"),
        data.hex(),
        data.hex().upper(),
        " ".join(f"{byte:02X}" for byte in data),
        str(list(data)),
    ]
