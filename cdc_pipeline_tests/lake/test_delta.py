from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from cdc_pipeline.lake.delta import (
    Commit,
    commit_metadata,
    commit_session,
    committed_version,
    create_table,
    forget_cached_log,
    row_count,
    table_state,
)
from cdc_pipeline.lake.writes import append_once, overwrite_once

_APP = "cdc:shop:test"
_MAPPED = {"delta.columnMapping.mode": "name"}


def _commit(version: int, app: str = _APP, **note: Any) -> Commit:
    return Commit(app, version, note)


def _frame(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    return spark.createDataFrame(list(rows), "id INT, name STRING")


def _rows(spark: SparkSession, path: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in spark.read.format("delta").load(path).collect())


def _version(spark: SparkSession, path: str) -> int:
    state = table_state(spark, path)
    assert state is not None
    return state.version


def _notes(spark: SparkSession, path: str) -> list[Any]:
    """The notes of the commits, oldest first."""
    history = DeltaTable.forPath(spark, path).history().select("version", "userMetadata").collect()
    return [note and json.loads(note) for _, note in sorted(tuple(row) for row in history)]


def test_a_missing_table(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    assert (table_state(spark, path), committed_version(spark, path, _APP)) == (None, None)
    assert not (tmp_path / "t").exists()


def test_append_once(spark: SparkSession, tmp_path: Path) -> None:
    """Skips the same version and a lower one. Each writer has its own versions."""
    path = str(tmp_path / "t")
    append_once(_frame(spark, (1, "a")), path, _commit(5, batch=5, text="é"))
    append_once(_frame(spark, (2, "again")), path, _commit(5))
    append_once(_frame(spark, (3, "late")), path, _commit(4))
    append_once(_frame(spark, (4, "next")), path, _commit(6))
    append_once(_frame(spark, (5, "other")), path, _commit(5, app="cdc:shop:other"))
    assert _rows(spark, path) == [(1, "a"), (4, "next"), (5, "other")]
    assert _version(spark, path) == 2
    assert [committed_version(spark, path, app) for app in (_APP, "cdc:shop:other", "none")] == [6, 5, None]
    assert _notes(spark, path) == [{"batch": 5, "text": "é"}, {}, {}]


def test_overwrite_once(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    append_once(_frame(spark, (1, "a")), path, _commit(1))
    overwrite_once(spark.createDataFrame([(7,)], "other LONG"), path, _commit(2))
    overwrite_once(_frame(spark, (8, "again")), path, _commit(2))
    state = table_state(spark, path)
    assert state is not None
    assert (_rows(spark, path), state.version, state.schema.simpleString()) == ([(7,)], 1, "struct<other:bigint>")
    assert committed_version(spark, path, _APP) == 2


def test_a_statement_in_its_own_session(spark: SparkSession, tmp_path: Path) -> None:
    """A repeated MERGE, UPDATE or DELETE changes nothing. The `txn` pair does not leak into the shared session."""
    path = str(tmp_path / "t")
    append_once(_frame(spark, (1, "a"), (2, "b"), (3, "c")), path, _commit(1))

    def merge(version: int, name: str) -> None:
        session = commit_session(spark, _commit(version, step=version))
        source = session.createDataFrame([(1, name), (9, name)], "id INT, name STRING").alias("s")
        merged = DeltaTable.forPath(session, path).alias("t").merge(source, "t.id = s.id")
        merged.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()

    for _ in range(2):
        merge(2, "x")
        DeltaTable.forPath(commit_session(spark, _commit(3)), path).update("id = 2", {"name": "name || 'u'"})
        DeltaTable.forPath(commit_session(spark, _commit(4)), path).delete("id = 3")
    merge(3, "late")
    assert _rows(spark, path) == [(1, "x"), (2, "bu"), (9, "x")]
    assert (_version(spark, path), committed_version(spark, path, _APP)) == (3, 4)
    assert _notes(spark, path)[1] == {"step": 2}
    assert spark.conf.get("spark.databricks.delta.write.txnAppId", "none") == "none"
    DeltaTable.forPath(spark, path).delete("id = 9")
    assert _rows(spark, path) == [(1, "x"), (2, "bu")]


# ---- metadata


@pytest.fixture
def mapped(spark: SparkSession, tmp_path: Path) -> str:
    """A table `id, name, gone` with column mapping and one row, written by commit 1."""
    path = str(tmp_path / "mapped")
    append_once(spark.createDataFrame([(1, "a", 7)], "id INT, name STRING, gone INT"), path, _commit(1))
    commit_metadata(spark, path, _commit(2, app="setup"), properties={**_MAPPED, "cdc.kept": "yes"})
    return path


def _fields(spark: SparkSession, path: str) -> dict[str, StructField]:
    state = table_state(spark, path)
    assert state is not None
    return {field.name: field for field in state.schema.fields}


def _all_changes(spark: SparkSession, path: str, commit: Commit) -> bool:
    """Renames `name` to `title` and moves it first, drops `gone`, adds a new `name`."""
    old = _fields(spark, path)
    renamed = old.get("title", old.get("name"))
    assert renamed is not None
    schema = StructType(
        [
            StructField("title", StringType(), metadata=renamed.metadata),
            old["id"],
            StructField("name", LongType()),
        ]
    )
    return commit_metadata(spark, path, commit, schema=schema, properties={"cdc.state": "é", "cdc.gaps": "[]"})


def test_all_changes_of_metadata_are_one_commit(mapped: str, spark: SparkSession) -> None:
    before = _version(spark, mapped)
    assert _all_changes(spark, mapped, _commit(2, step=3))
    state = table_state(spark, mapped)
    assert state is not None
    assert state.version == before + 1
    assert state.schema.simpleString() == "struct<title:string,id:int,name:bigint>"
    assert {name: setting for name, setting in state.properties.items() if name.startswith("cdc.")} == {
        "cdc.kept": "yes",
        "cdc.state": "é",
        "cdc.gaps": "[]",
        "cdc.last_note": '{"step":3}',
    }


def test_old_rows_are_found_under_new_names(mapped: str, spark: SparkSession) -> None:
    """The renamed column keeps its values. The new column under the old name is NULL in old rows."""
    _all_changes(spark, mapped, _commit(2))
    spark.createDataFrame([("b", 2, 2**40)], "title STRING, id INT, name LONG").write.format("delta").mode(
        "append"
    ).save(mapped)
    found = spark.read.format("delta").load(mapped).orderBy("id").collect()
    assert [tuple(row) for row in found] == [("a", 1, None), ("b", 2, 2**40)]


def test_metadata_once(mapped: str, spark: SparkSession) -> None:
    assert _all_changes(spark, mapped, _commit(2))
    after = table_state(spark, mapped)
    again = [_all_changes(spark, mapped, _commit(version)) for version in (2, 1)]
    late = commit_metadata(spark, mapped, _commit(2), properties={"cdc.state": "late"})
    assert (again, late, table_state(spark, mapped)) == ([False, False], False, after)


def test_metadata_keeps_the_progress_of_all_writers(mapped: str, spark: SparkSession) -> None:
    _all_changes(spark, mapped, _commit(9))
    assert [committed_version(spark, mapped, app) for app in (_APP, "setup")] == [9, 2]
    append_once(spark.createDataFrame([("b", 2, 1)], "title STRING, id INT, name LONG"), mapped, _commit(9))
    assert len(_rows(spark, mapped)) == 1


def test_properties_alone_leave_columns_and_rows(mapped: str, spark: SparkSession) -> None:
    before = _fields(spark, mapped)
    assert commit_metadata(spark, mapped, _commit(2), properties={"cdc.state": "new", "cdc.kept": "no"})
    state = table_state(spark, mapped)
    assert state is not None
    assert (state.properties["cdc.state"], state.properties["cdc.kept"]) == ("new", "no")
    assert _fields(spark, mapped) == before
    assert _rows(spark, mapped) == [(1, "a", 7)]


def test_a_wider_type_reads_old_files(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    append_once(_frame(spark, (2**31 - 1, "a")), path, _commit(1))
    changes = {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
    schema = StructType([StructField("id", LongType(), metadata=changes), StructField("name", StringType())])
    commit_metadata(spark, path, _commit(2), schema=schema, properties={"delta.enableTypeWidening": "true"})
    append_once(spark.createDataFrame([(2**62, "b")], "id LONG, name STRING"), path, _commit(3))
    assert _rows(spark, path) == [(2**31 - 1, "a"), (2**62, "b")]


@pytest.mark.parametrize("stats", ["true", "false"])
def test_rows_are_counted(stats: str, spark: SparkSession, tmp_path: Path) -> None:
    """With deletion vectors, and with files that have no statistics."""
    path, counts = str(tmp_path / "t"), []
    create_table(
        spark, path, _commit(1), schema=_frame(spark).schema, properties={"delta.enableDeletionVectors": "true"}
    )
    counts.append(row_count(spark, path))
    kept = spark.conf.get("spark.databricks.delta.stats.collect")
    spark.conf.set("spark.databricks.delta.stats.collect", stats)
    try:
        append_once(_frame(spark, (1, "a"), (2, "b"), (3, "c")).coalesce(1), path, _commit(2))
    finally:
        spark.conf.set("spark.databricks.delta.stats.collect", kept or "true")
    counts.append(row_count(spark, path))
    DeltaTable.forPath(commit_session(spark, _commit(3)), path).delete("id = 2")
    counts.append(row_count(spark, path))
    assert counts == [0, 3, 2]
    assert '"deletionVector":{' in "".join(file.read_text() for file in (tmp_path / "t" / "_delta_log").glob("*2.json"))


def test_a_moved_table_is_seen_anew(spark: SparkSession, tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    append_once(_frame(spark, (1, "a")), str(old), _commit(1))
    old.rename(new)
    forget_cached_log(spark, str(old))
    assert table_state(spark, str(old)) is None
    state = table_state(spark, str(new))
    assert state is not None
    assert state.schema == StructType([StructField("id", IntegerType()), StructField("name", StringType())])
    assert (state.version, committed_version(spark, str(new), _APP), _rows(spark, str(new))) == (0, 1, [(1, "a")])


def test_a_note_is_one_line_of_json() -> None:
    assert Commit("app", 1, {"text": "é\n", "n": 1}).note_json == '{"text":"é\\n","n":1}'
