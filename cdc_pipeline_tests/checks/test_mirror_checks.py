"""Checks report duplicate keys, and columns that differ from DDL, with their location and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from cdc_pipeline.checks import results as results_of_checks
from cdc_pipeline.checks.contract import contract_result, validate_table
from cdc_pipeline.checks.cuts import ddl_applied_result, no_gaps_result
from cdc_pipeline.checks.mirrors import ddl_differences, delta_differences, keys_hold_results
from cdc_pipeline.checks.records import dead_letters_result
from cdc_pipeline.checks.results import (
    WRONG_TABLES,
    next_in_rotation,
    previously_failed_tables,
    without_repeated,
)
from cdc_pipeline.gaps import Gap, GapKind
from cdc_pipeline.lake.lake import Lake
from cdc_pipeline.lake.paths import LakePaths
from cdc_pipeline.lake.recent_answers import RecentAnswers
from cdc_pipeline.mirrors.model.state import METADATA, MirrorState
from cdc_pipeline.mysql.model.table import Column, MySqlType, TableName, TableSchema
from cdc_pipeline_tests.support.lakes.mirror_checks import CHECKED, CUTS, mirror_checks, report_of
from cdc_pipeline_tests.support.lakes.pipelines import ingest
from cdc_pipeline_tests.support.lakes.stories import KEYLESS, change, create, put
from cdc_pipeline_tests.support.lakes.ways import MERGED, REWRITTEN, written_by
from cdc_pipeline_tests.support.messages import Topic, watermark

_NAMES = [TableName("db", name) for name in "abcde"]


@pytest.mark.parametrize(
    ("first", "turn", "most", "expected"),
    [
        ("", 0, 2, "ab"),
        ("", 1, 2, "cd"),
        ("", 2, 2, "ea"),
        ("d", 1, 3, "dce"),
        ("d", 0, 9, "dabce"),
        ("edc", 1, 2, "ec"),
        ("", 7, 0, ""),
    ],
)
def test_remaining_tables_take_turns(first: str, turn: int, most: int, expected: str) -> None:
    found = next_in_rotation([TableName("db", name) for name in first], _NAMES, turn, most)
    assert "".join(name.table for name in found) == expected


def test_failed_tables_are_checked_again() -> None:
    key, wrong = dg.AssetKey("cuts"), iter((["db.t"], []))
    during: list[frozenset[str]] = []

    @dg.multi_asset(specs=[dg.AssetSpec(key)], check_specs=[dg.AssetCheckSpec("any", asset=key)])
    def cuts() -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        # Dagster has stored that this run plans to evaluate the check
        during.append(previously_failed_tables(instance, key, "any"))
        yield dg.MaterializeResult(asset_key=key)
        found = next(wrong)
        metadata = {WRONG_TABLES: dg.MetadataValue.json(found)}
        yield dg.AssetCheckResult(check_name="any", asset_key=key, passed=not found, metadata=metadata)

    with dg.DagsterInstance.ephemeral() as instance:
        assert previously_failed_tables(instance, key, "any") == frozenset()
        for expected in ({"db.t"}, set()):
            dg.materialize([cuts], instance=instance)
            assert previously_failed_tables(instance, key, "any") == expected
    assert during == [frozenset(), {"db.t"}]


@pytest.mark.parametrize(("few", "expected"), [(0, [2, 1, 2, 2, 2]), (1, [2, 2, 2, 2, 2])])
def test_mirrors_that_pass_again_have_no_new_result_if_they_are_many(
    monkeypatch: pytest.MonkeyPatch, few: int, expected: list[int]
) -> None:
    monkeypatch.setattr(results_of_checks, "FEW_MIRRORS", few)
    mirror = CHECKED.mirror(TableName("db", "t"))

    def results(*, passed: bool) -> list[dg.AssetCheckResult]:
        return [dg.AssetCheckResult(check_name="any", asset_key=key, passed=passed) for key in (CUTS, mirror)]

    with dg.DagsterInstance.ephemeral() as instance:
        stored = []
        for passed in (True, True, False, False, True):
            found = without_repeated(instance, results(passed=passed), CUTS)
            stored.append(len(found))
            for one in found:
                instance.report_runless_asset_event(
                    dg.AssetCheckEvaluation(asset_key=one.asset_key, check_name="any", passed=passed, metadata={})  # type: ignore[arg-type]
                )
    # the result of all is in each run
    assert stored == expected


_STATE = MirrorState(
    TableName("db", "t"), "m", TableSchema((Column("id", MySqlType("int")), Column("v", MySqlType("varchar", (20,)))))
)


def test_columns_of_delta_and_of_the_definition() -> None:
    schema = _STATE.spark_schema()
    assert delta_differences(schema, _STATE) == []
    other = StructType([StructField("id", METADATA["_offset"].dataType), *schema.fields[2:]])
    assert delta_differences(other, _STATE) == [
        "column id: the mirror's definition has int, Delta has bigint",
        "column v: the mirror's definition has string, Delta has no such column",
    ]
    # a column that upstream dropped and the pipeline kept is no difference
    assert (
        delta_differences(schema, replace(_STATE, schema=_STATE.schema.with_columns(()), kept_columns=("id", "v")))
        == []
    )


def test_columns_of_the_newest_statement() -> None:
    def statement(**columns: str) -> Row:
        listed = [{"name": name, "mysql_type": kind} for name, kind in columns.items()]
        return Row(topic="t", partition=0, offset=7, columns=listed)

    assert ddl_differences(_STATE, None) == []
    assert ddl_differences(_STATE, statement(id="int", v="varchar(20)")) == []
    assert ddl_differences(_STATE, statement(id="bigint", v="varchar(20)", w="int")) == [
        "column id: the DDL at t/0@7 has bigint, the mirror's definition has int",
        "column w: the DDL at t/0@7 has int, the mirror's definition has no such column",
    ]
    # rows had columns that DDL does not have, or rows had all columns
    assert ddl_differences(_STATE, statement(id="int")) != []
    undeclared = _STATE.with_gaps(Gap(GapKind.UNDECLARED_COLUMN, "rows have columns that no DDL declares", "v"))
    assert ddl_differences(undeclared, statement(id="int")) == []
    other = _STATE.with_gaps(Gap(GapKind.UNDECLARED_COLUMN, "rows have columns that no DDL declares", "w"))
    assert ddl_differences(other, statement(id="int")) != []
    assert ddl_differences(replace(_STATE, inferred=True), statement(id="bigint")) == []


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> LakePaths:
    folder = tmp_path_factory.mktemp("mirror_checks")
    paths = LakePaths(str(folder / "lake"), "shop")
    topic = Topic()
    messages = [create("t", 1), create("bag", 1, KEYLESS), put("t", 2, "1", "a"), put("t", 3, "x", "b")]
    messages += [put("bag", 4, "1", "x"), put("bag", 4, "1", "x"), change("ALTER TABLE t NO_SUCH THING = 'secret'", 5)]
    for payload, partition in [*messages, (watermark(9), 0), (watermark(9), 1)]:
        topic.send(payload, partition)
    topic.write(folder / "captures", "1.jsonl")
    ingest(spark, paths, folder / "captures")
    return paths


def test_each_check_reports_problem_location_and_remedy(lake: LakePaths, spark: SparkSession) -> None:
    report = report_of(spark, lake)
    checks = {
        "`value_has_type: 1, for example t/1@1`. ": dead_letters_result(Lake(spark, lake), RecentAnswers(), CUTS),
        "the first at t/0@2`. ": ddl_applied_result(Lake(spark, lake), RecentAnswers(), CUTS),
        "`1 mirror(s) have gaps, for example db.t: ": no_gaps_result(report, CUTS),
    }
    jobs = ["shop_release_dead_letters", "shop_ddl_dry_run", "shop_rebuild"]
    for (location, found), job in zip(checks.items(), jobs, strict=True):
        assert not found.passed
        assert location in (found.description or "")
        assert job in (found.description or "")
    unapplied = ddl_applied_result(Lake(spark, lake), RecentAnswers(), CUTS).metadata["t/0@2"].value
    assert str(unapplied).startswith("ALTER TABLE t NO_SUCH THING = '…' (")
    assert "secret" not in str(unapplied)
    letters = dead_letters_result(Lake(spark, lake), RecentAnswers(), CUTS)
    assert letters.metadata["value_has_type"].value == "1 of db.t, for example t/1@1"


def test_keys_and_columns_of_mirrors(lake: LakePaths, spark: SparkSession) -> None:
    """After the tests that need the mirror as it was: this one changes it by hand."""
    keys, schemas, commits = mirror_checks(spark, lake)
    assert [(check.passed, check.description) for check in (keys, schemas, commits)] == [(True, None)] * 3
    assert keys.metadata["checked"].value == {"all rows": 1, "tables without a key": 1}
    # a run without changes checks nothing
    (untouched,) = keys_hold_results(Lake(spark, lake), report_of(spark, lake), CHECKED, {})
    assert (untouched.passed, untouched.metadata["checked"].value) == (True, {})

    path = lake.mirror(TableName("db", "t"))
    copy = spark.read.format("delta").load(path).withColumn("_offset", F.lit(77).cast("bigint"))
    copy.write.format("delta").mode("append").save(path)
    spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS (mine INT)")
    ingest(spark, lake, Path(lake.root).parent / "captures")  # no new records: the cut still names the old version
    keys, schemas, commits = mirror_checks(spark, lake)
    assert keys.passed
    assert (commits.metadata[WRONG_TABLES].value, commits.passed) == (["mirror/db/t"], False)
    assert commits.description is not None
    assert commits.description.startswith("`mirror/db/t: commit ")
    assert "(WRITE by Apache-Spark/" in commits.description
    assert schemas.description is not None
    assert schemas.description.startswith(
        "`db.t: column mine: the mirror's definition has no such column, Delta has int`. "
    )
    assert "shop_rebuild" in schemas.description
    assert schemas.metadata[WRONG_TABLES].value == ["db.t"]

    report = report_of(spark, lake)
    entries = tuple(
        replace(entry, version=entry.version + 2, rows=2) for entry in report.mirrors if entry.name.table == "t"
    )
    for most_rows, checked, way in (
        (2, "all rows", REWRITTEN),
        (2, "all rows", MERGED),
        (1, "rows of this cut", REWRITTEN),
    ):
        with written_by(way):  # small mirrors are read in the same way
            report = replace(report, mirrors=entries)
            found, of_mirror = keys_hold_results(Lake(spark, lake), report, CHECKED, {}, ["db.t"], most_rows)
        assert found.severity == dg.AssetCheckSeverity.ERROR
        assert found.description is not None
        assert found.description.startswith("`db.t: 1 key(s) in more than one row, or NULL: t/1@0 and t/1@77`. ")
        assert "shop_rebuild" in found.description
        assert found.metadata["checked"].value == {checked: 1}
        assert found.metadata[WRONG_TABLES].value == ["db.t"]
        assert of_mirror.asset_key == dg.AssetKey(["shop", "mirror", "db", "t"])
        assert (of_mirror.severity, of_mirror.metadata["checked"].value) == (found.severity, checked)
        assert of_mirror.description == found.description.replace("db.t: ", "")


def test_the_contract_names_rows(lake: LakePaths, spark: SparkSession) -> None:
    """The last test of the module, because it changes the dead letters by hand."""
    path = lake.table("dead_letters")
    dead_letters = (
        spark.read.format("delta").load(path).withColumns({"rule": F.lit(None).cast("string"), "reason": F.lit("")})
    )
    dead_letters.write.format("delta").mode("append").save(path)
    contract = contract_result(CUTS, validate_table(Lake(spark, lake), "dead_letters", [1], 2))
    assert (contract.description or "").startswith(
        "`dead_letters has 1 rows that break reason.str_length, for example t/1@1; dead_letters has 1 rows that break rule."
    )
    assert "raw_topic_snapshot" in (contract.description or "")
