"""Rows that lack columns, updates that lack their former row, and keys declared in the pipeline: one stream in two runs."""

from __future__ import annotations

import json

import pytest
from pyspark.sql import SparkSession

from cdc_pipeline.gaps import gap_texts
from cdc_pipeline.lake.delta import table_state
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.mirrors.model.state import MirrorState
from cdc_pipeline.mysql.model.table import TableName
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.messages import Topic, canal, canal_ddl, row

_COLUMNS = "(id INT PRIMARY KEY, v VARCHAR(20) DEFAULT 'dv', b TEXT, n INT NOT NULL DEFAULT 7)"
_TYPES = {"id": "int", "v": "varchar(20)", "b": "text", "n": "int"}


def _canal(
    kind: str,
    table: str,
    step: int,
    image: dict[str, str | None],
    old: dict[str, str | None] | None = None,
    key: str | None = "id",
) -> str:
    types = {name: _TYPES[name] for name in image}
    names = None if key is None else [key]
    return canal(kind, table, step, [image], old=None if old is None else [old], types=types, key=names)


def _sparse(
    kind: str, table: str, step: int, image: dict[str, str | None], old: dict[str, str | None] | None = None
) -> str:
    """A message without the columns that are NULL and without `pkNames`, as Canal up to 1.1.2 sends it."""
    sent = json.loads(_canal(kind, table, step, image, old))
    rows = {
        name: [{column: text for column, text in row.items() if text is not None} for row in sent[name]]
        for name in ("data", "old")
        if sent[name] is not None
    }
    names = [name for name in sent if name != "pkNames" and sent[name] is not None]
    return json.dumps({name: rows.get(name, sent[name]) for name in names})


def _uk(kind: str, step: int, code: str, value: str, old: dict[str, str | None] | None = None) -> str:
    return canal(kind, "uk", step, [{"code": code, "v": value}], old=None if old is None else [old])


FIRST = (
    *(
        canal_ddl(f"CREATE TABLE {name} {_COLUMNS}", 1, table=name, kind="CREATE")
        for name in ("kept", "lost", "chosen", "sparse", "filtered", "stamped", "tightened", "other")
    ),
    _canal("INSERT", "kept", 2, {"id": "1", "v": "a", "b": "long", "n": "1"}),
    _canal("INSERT", "kept", 2, {"id": "2", "v": "b", "b": "text", "n": "2"}),
    # NOBLOB, in the run that inserted the row
    _canal("UPDATE", "kept", 3, {"id": "1", "v": None, "n": "1"}, {"v": "a"}),
    # MINIMAL: absent columns have their defaults
    _canal("INSERT", "kept", 3, {"id": "3"}),
    _canal("INSERT", "kept", 3, {"id": "4", "b": "x", "n": "4"}),
    _canal("INSERT", "lost", 2, {"id": "1", "v": "a", "b": "long", "n": "1"}),
    # a column that TiCDC's column selectors exclude: its value is unknown after every INSERT
    row("INSERT", "chosen", 2, {"id": "1", "b": "y", "n": "1"}, types=_TYPES, key=["id"], extension=False),
    canal_ddl(f"CREATE TABLE declared {_COLUMNS.replace(' PRIMARY KEY', '')}", 1, table="declared", kind="CREATE"),
    _canal("INSERT", "declared", 2, {"id": "1", "v": "a", "b": "long", "n": "1"}, key=None),
    _canal("INSERT", "declared", 2, {"id": "2", "v": "b", "b": "text", "n": "2"}, key=None),
    _canal("UPDATE", "declared", 3, {"id": "1", "v": "c", "n": "1"}, {"v": "a"}, key=None),
    _sparse("INSERT", "sparse", 2, {"id": "1", "v": None, "b": None, "n": "1"}),
    _sparse("INSERT", "sparse", 2, {"id": "2", "v": "b", "b": "x", "n": "2"}),
    _sparse("UPDATE", "sparse", 3, {"id": "2", "v": "b", "b": None, "n": "2"}, {"b": "x"}),
    canal_ddl(f"CREATE TABLE keyless {_COLUMNS.replace(' PRIMARY KEY', '')}", 1, table="keyless", kind="CREATE"),
    *(
        _sparse("INSERT", "keyless", 2, {"id": str(number), "v": text, "b": None, "n": "1"})
        for number, text in ((1, "a"), (2, None), (3, "c"))
    ),
    _canal("INSERT", "filtered", 2, {"id": "1", "v": "a", "n": "1"}),
    _canal("INSERT", "filtered", 2, {"id": "2", "v": "b", "n": "2"}),
    _canal("INSERT", "stamped", 2, {"id": "1", "v": "a", "b": "x", "n": "1"}),
    _canal("INSERT", "tightened", 2, {"id": "1", "v": None, "b": "x", "n": "1"}),
    _canal("INSERT", "tightened", 2, {"id": "2", "v": "b", "b": "x", "n": "1"}),
    # each row has the default of its time
    _canal("INSERT", "other", 2, {"id": "1"}),
    canal_ddl("ALTER TABLE other ALTER v SET DEFAULT 'new'", 3, table="other"),
    _canal("INSERT", "other", 4, {"id": "2"}),
    _uk("INSERT", 2, "A", "one"),
    _uk("INSERT", 2, "a", "two"),
    _uk("INSERT", 3, "b ", "three"),
)
SECOND = (
    _canal("UPDATE", "kept", 5, {"id": "2", "v": "c", "n": "2"}, {"v": "b"}),
    _canal("UPDATE", "kept", 6, {"id": "2", "n": "22"}, {"n": "2"}),
    _canal("UPDATE", "declared", 5, {"id": "2", "n": "22"}, {"n": "2"}, key=None),
    # deleted and inserted again: its former values are not restored
    _canal("DELETE", "kept", 6, {"id": "4"}),
    _canal("INSERT", "kept", 7, {"id": "4", "n": "44"}),
    # an UPDATE of the key without its text column, and an UPDATE of an unknown row
    _canal("UPDATE", "lost", 5, {"id": "5", "v": "a", "n": "1"}, {"id": "1"}),
    _canal("UPDATE", "lost", 6, {"id": "9", "v": "z", "n": "9"}, {"v": "y"}),
    # MINIMAL: under the new key its other columns are unknown, and have no defaults
    _canal("UPDATE", "lost", 7, {"id": "10"}, {"id": "9"}),
    _canal("INSERT", "lost", 7, {"id": "11"}),
    _sparse("UPDATE", "sparse", 5, {"id": "1", "v": "a", "b": None, "n": "1"}, {}),
    _sparse("UPDATE", "sparse", 6, {"id": "3", "v": "b", "b": None, "n": "2"}, {"id": "2"}),
    # MINIMAL: which rows these are is unknown
    _sparse("UPDATE", "sparse", 7, {"v": "y"}, {}),
    _sparse("UPDATE", "sparse", 8, {"v": "z"}),
    # its n may have been NULL; then two that do not show their former row
    _sparse("UPDATE", "keyless", 5, {"id": "1", "v": "aa", "b": None, "n": "1"}, {"v": "a"}),
    _sparse("UPDATE", "keyless", 6, {"id": "2", "v": "b", "b": None, "n": "1"}, {"v": None}),
    _sparse("UPDATE", "keyless", 7, {"id": "3", "v": "c", "b": None, "n": "1"}),
    # the message names the key: a column that is not sent has changed
    _canal("UPDATE", "filtered", 5, {"id": "1", "v": "aa", "n": "1"}),
    _canal("UPDATE", "filtered", 6, {"id": "3", "v": "b", "n": "2"}, {"id": "2"}),
    # the binlog does not tell whether the server has `explicit_defaults_for_timestamp`
    canal_ddl("ALTER TABLE stamped ADD COLUMN at TIMESTAMP, ADD COLUMN since TIMESTAMP", 5, table="stamped"),
    # only a server without strict mode accepts it, and replaces the NULL
    canal_ddl("ALTER TABLE tightened MODIFY v VARCHAR(20) NOT NULL", 5, table="tightened"),
    _uk("UPDATE", 5, "A", "uno", {"v": "one"}),
    _uk("UPDATE", 6, "b", "three", {"code": "b "}),
    _uk("DELETE", 7, "a", "two"),
)
EXPECTED = {
    "kept": [
        [(1, None, "long", 1), (2, "b", "text", 2), (3, "dv", None, 7), (4, "dv", "x", 4)],
        [(1, None, "long", 1), (2, "c", "text", 22), (3, "dv", None, 7), (4, "dv", None, 44)],
    ],
    "lost": [[(1, "a", "long", 1)], [(10, None, None, None), (11, "dv", None, 7), (5, "a", None, 1)]],
    "chosen": [[(1, None, "y", 1)]] * 2,
    "sparse": [
        [(1, None, None, 1), (2, "b", None, 2)],
        [(1, "a", None, 1), (3, "b", None, 2)],
    ],
    "keyless": [
        [(1, "a", None, 1), (2, None, None, 1), (3, "c", None, 1)],
        [(1, "aa", None, 1), (2, None, None, 1), (3, "c", None, 1)],
    ],
    "filtered": [[(1, "a", None, 1), (2, "b", None, 2)], [(1, "aa", None, 1), (3, "b", None, 2)]],
    # the key is declared by `keys` of the pipeline only
    "declared": [[(1, "c", "long", 1), (2, "b", "text", 2)], [(1, "c", "long", 1), (2, "b", "text", 22)]],
    "stamped": [[(1, "a", "x", 1)], [(1, "a", "x", 1, None, None)]],
    "tightened": [[(1, None, "x", 1), (2, "b", "x", 1)]] * 2,
    "other": [[(1, "dv", None, 7), (2, "new", None, 7)]] * 2,
    "uk": [[("A", "one"), ("a", "two"), ("b ", "three")], [("A", "uno"), ("b", "three")]],
}
GAPS = {
    "kept": (),
    "lost": (
        "2 row(s) were updated without some columns and did not exist in the mirror under their key, so these columns are "
        "NULL: v, b, n",
    ),
    "chosen": ("rows came without some columns",),
    "sparse": ("2 row(s) with values that their types cannot hold: see dead_letters",),
    "keyless": (
        "1 UPDATE(s) of a table without a key do not show",
        "2 row(s) with values that their types cannot hold: see dead_letters",
    ),
    "filtered": ("rows came without some columns",),
    "declared": (),
    "stamped": ("column at: 1 older row(s) may differ from what upstream computes",),
    "tightened": ("column v: 1 older row(s) have NULL, but the column is NOT NULL now",),
    "other": (),
    "uk": ("no CREATE TABLE was seen",),
}


@pytest.fixture(scope="module")
def ingested(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, way: str
) -> tuple[LakePaths, dict[str, list[object]]]:
    folder, topic = tmp_path_factory.mktemp(f"partial-{way}"), Topic()
    paths = LakePaths(str(folder / "lake"), "shop")
    rows: dict[str, list[object]] = {table: [] for table in EXPECTED}
    for number, messages in enumerate((FIRST, SECOND)):
        for message in messages:
            topic.send(message)
        topic.write(folder / "captures", f"{number}.jsonl")
        ingest(spark, paths, folder / "captures", keys={"db.uk": ("code",), "db.kept": ("v",), "db.declared": ("id",)})
        for table, found in rows.items():
            mirror = spark.read.format("delta").load(paths.mirror(TableName("db", table)))
            found.append(sorted((tuple(row)[:-4] for row in mirror.collect()), key=str))
    return paths, rows


@pytest.mark.parametrize("table", EXPECTED)
def test_rows(ingested: tuple[LakePaths, dict[str, list[object]]], table: str) -> None:
    assert ingested[1][table] == EXPECTED[table]


@pytest.mark.parametrize("table", GAPS)
def test_gaps(ingested: tuple[LakePaths, dict[str, list[object]]], spark: SparkSession, table: str) -> None:
    state = table_state(spark, ingested[0].mirror(TableName("db", table)))
    assert state is not None
    gaps = gap_texts(MirrorState.from_properties(state.properties).gaps)
    assert len(gaps) == len(GAPS[table])
    assert all(gap.startswith(start) for gap, start in zip(gaps, GAPS[table], strict=True)), gaps


def test_updates_that_identify_no_row_are_dead_letters(
    ingested: tuple[LakePaths, dict[str, list[object]]], spark: SparkSession
) -> None:
    letters = spark.read.format("delta").load(ingested[0].table("dead_letters"))
    no_key = "column id: expected a key, found no value"
    no_row = "expected the row before the update, for a table without a key, found no value"
    assert sorted(letters.select("table", "rule", "column", "reason").collect(), key=str) == [
        *[("keyless", "value_has_type", None, no_row)] * 2,
        *[("sparse", "value_has_type", "id", no_key)] * 2,
    ]
